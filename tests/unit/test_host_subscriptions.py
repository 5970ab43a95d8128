"""Waits in the background: when each is over, that it is told once, and what stays where the disk refuses."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Self

import msgspec
import pytest

from pisub.hosting.subscriptions import FOREIGN_GRACE_MS, Subscriptions, WaitEnded, judge
from pisub.ids import new_id
from pisub.process import own_identity
from pisub.protocol.runs import RunState
from pisub.record.commit import commit_end
from pisub.record.disk import Disk, Operation
from pisub.record.layout import Layout
from pisub.record.lock import RunLock
from pisub.record.reader import read_run
from pisub.record.status import read_status, write_status
from pisub.record.subscriptions import WaitSubscription, list_subscriptions, subscribe
from pisub.runs.spec import RunSpec
from pisub.testing import FakeClock
from tests.support.eventually import eventually_async
from tests.support.record_samples import NOW_MS, SESSION, make_layout, make_result, start, submit


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return make_layout(tmp_path)


def running(layout: Layout, **activity: str) -> RunSpec:
    spec = submit(layout)
    start(layout, spec, own_identity())
    status = read_status(layout.run(spec.run_id))
    assert status is not None
    write_status(layout.run(spec.run_id), msgspec.structs.replace(status, **activity), fsync=False)
    return spec


def end(layout: Layout, spec: RunSpec, state: RunState = RunState.COMPLETE) -> None:
    paths = layout.run(spec.run_id)
    status = read_status(paths)
    lock = RunLock.acquire(paths.lock)
    assert status is not None
    assert lock is not None
    with lock:
        commit_end(layout, lock, status, make_result(spec, state=state))


def waiting_for(layout: Layout, run_id: str, *, session_id: str = SESSION, **fields: object) -> WaitSubscription:
    made = WaitSubscription(
        token=new_id(),
        session_id=session_id,
        run_id=run_id,
        requested_id=run_id,
        created_at=NOW_MS,
        expires_at=NOW_MS + 5_000,
    )
    made = msgspec.structs.replace(made, **fields)
    assert subscribe(layout, made)
    return made


class Told:
    """A session's waits looked after until the block ends, and what its handler heard."""

    def __init__(self, layout: Layout, clock: FakeClock | None = None) -> None:
        self.ended: list[WaitEnded] = []
        self.reported: list[str] = []
        self.clock = clock or FakeClock(wall_ms=NOW_MS)
        self.waits = Subscriptions(
            layout, SESSION, clock=self.clock, report=lambda what, _error: self.reported.append(what)
        )
        self.waits.tell(self.ended.append)

    async def __aenter__(self) -> Self:
        self.waits.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.waits.stop()

    async def hears(self, count: int) -> list[str]:
        """Wait until so many were told; return their outcomes."""
        self.waits.wake()
        await eventually_async(lambda: len(self.ended) >= count, what=f"{count} waits are over")
        return [each.outcome for each in self.ended]


@pytest.mark.parametrize("state", [RunState.COMPLETE, RunState.FAILED, RunState.STOPPED, RunState.PAUSED])
def test_an_end_is_told_once_with_its_state_and_the_file_is_gone(layout: Layout, state: RunState) -> None:
    async def scenario() -> None:
        spec = running(layout)
        wait = waiting_for(layout, spec.run_id)
        async with Told(layout) as told:
            end(layout, spec, state)
            assert await told.hears(1) == [state.value]
            assert (told.ended[0].subscription, told.ended[0].text) == (
                wait,
                f"Run {spec.run_id} has ended: {state.value}.",
            )
            assert list_subscriptions(layout) == []
        async with Told(layout) as later:
            other = running(layout)
            waiting_for(layout, other.run_id)
            end(layout, other)
            await later.hears(1)
            assert [each.subscription.run_id for each in later.ended] == [other.run_id]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("activity", "stops", "after_ms", "outcome"),
    [
        ({}, True, 4_999, None),
        ({}, True, 5_000, "timed-out"),
        ({"activity_state": "needs_attention", "activity_reason": "quiet"}, True, 0, "needs-attention"),
        ({"activity_state": "needs_attention", "activity_reason": "quiet"}, False, 0, None),
        ({"activity_state": "needs_attention", "activity_reason": "waiting_for_human"}, False, 0, "needs-attention"),
        ({"activity_state": "active_long_running", "activity_reason": "long_running"}, True, 0, None),
    ],
)
def test_what_goes_on_ends_a_wait_by_its_time_or_its_need(
    layout: Layout, activity: dict[str, str], stops: bool, after_ms: int, outcome: str | None
) -> None:
    spec = running(layout, **activity)
    wait = waiting_for(layout, spec.run_id, stop_on_attention=stops)
    ended = judge(wait, read_run(layout, spec.run_id), NOW_MS + after_ms)
    assert (None if ended is None else ended.outcome) == outcome


def test_a_run_that_is_gone_ends_its_wait_and_another_session_s_wait_is_left_alone(layout: Layout) -> None:
    async def scenario() -> None:
        spec = running(layout)
        foreign = waiting_for(layout, spec.run_id, session_id="another", expires_at=NOW_MS - 1)
        waiting_for(layout, new_id())
        end(layout, spec)
        async with Told(layout) as told:
            assert await told.hears(1) == ["could-not-be-reconciled"]
            assert list_subscriptions(layout) == [foreign]

    asyncio.run(scenario())


def test_another_session_s_wait_is_swept_a_day_after_its_time(layout: Layout) -> None:
    async def scenario() -> None:
        kept = waiting_for(layout, new_id(), session_id="another", expires_at=NOW_MS)
        waiting_for(layout, new_id(), session_id="another", expires_at=NOW_MS - 1)
        async with Told(layout, FakeClock(wall_ms=NOW_MS + FOREIGN_GRACE_MS)):
            await eventually_async(lambda: list_subscriptions(layout) == [kept], what="the old one is swept")

    asyncio.run(scenario())


def test_a_session_s_own_wait_is_told_days_after_its_time_though_a_host_without_a_handler_came_first(
    layout: Layout,
) -> None:
    async def scenario() -> None:
        spec = running(layout)
        wait = waiting_for(layout, spec.run_id)
        foreign = waiting_for(layout, spec.run_id, session_id="another")
        clock = FakeClock(wall_ms=NOW_MS + 3 * FOREIGN_GRACE_MS)
        deaf = Subscriptions(layout, SESSION, clock=clock, report=_fail)
        deaf.start()
        await eventually_async(lambda: foreign not in list_subscriptions(layout), what="the sweep")
        await deaf.stop()
        assert list_subscriptions(layout) == [wait]
        async with Told(layout, clock) as told:
            assert await told.hears(1) == ["timed-out"]

    asyncio.run(scenario())


def test_a_wait_that_cannot_be_removed_is_told_when_it_can(layout: Layout) -> None:
    async def scenario() -> None:
        spec = running(layout)
        wait = waiting_for(layout, spec.run_id)
        end(layout, spec)
        refused = 0

        def refuse(operation: Operation, name: str) -> None:
            nonlocal refused
            if operation is Operation.UNLINK and name.startswith(wait.token) and refused < 2:
                refused += 1
                raise OSError(errno.EROFS, "read-only for a while")

        with Disk.observed_by(refuse):
            async with Told(layout) as told:
                await eventually_async(lambda: refused == 1, what="the first try")
                assert (told.ended, list_subscriptions(layout)) == ([], [wait])
                told.waits.wake()
                await eventually_async(lambda: refused == 2, what="the second try")
                assert await told.hears(1) == ["complete"]
                assert len(told.reported) == 1, "said once, not at every look"

    asyncio.run(scenario())


def test_two_hosts_that_look_at_once_tell_one_of_them(layout: Layout) -> None:
    async def scenario() -> None:
        for _ in range(20):
            spec = running(layout)
            waiting_for(layout, spec.run_id)
            end(layout, spec)
            async with Told(layout) as first, Told(layout) as second:
                await eventually_async(lambda: len(first.ended) + len(second.ended) >= 1, what="one is told")
                assert list_subscriptions(layout) == []
            assert len(first.ended) + len(second.ended) == 1

    asyncio.run(scenario())


def test_without_a_handler_a_wait_stays_for_a_host_that_has_one(layout: Layout) -> None:
    async def scenario() -> None:
        spec = running(layout)
        wait = waiting_for(layout, spec.run_id)
        end(layout, spec)
        deaf = Subscriptions(layout, SESSION, clock=FakeClock(wall_ms=NOW_MS), report=_fail)
        deaf.start()
        deaf.wake()
        await asyncio.sleep(0)
        await deaf.stop()
        assert list_subscriptions(layout) == [wait]
        async with Told(layout) as told:
            assert await told.hears(1) == ["complete"]

    asyncio.run(scenario())


def test_what_a_handler_raises_is_reported_and_keeps_no_other_wait(layout: Layout) -> None:
    async def scenario() -> None:
        for _ in range(2):
            spec = running(layout)
            waiting_for(layout, spec.run_id)
            end(layout, spec)
        told = Told(layout)

        def handler(ended: WaitEnded) -> None:
            told.ended.append(ended)
            raise ValueError("mine")

        told.waits.tell(handler)
        async with told:
            await told.hears(2)
        assert told.reported == ["The handler of a wait that was over raised."] * 2
        assert list_subscriptions(layout) == []

    asyncio.run(scenario())


def test_a_stop_in_the_middle_waits_for_the_handler_that_was_called(layout: Layout) -> None:
    async def scenario() -> None:
        spec = running(layout)
        waiting_for(layout, spec.run_id)
        end(layout, spec)
        began, may_end, done = asyncio.Event(), asyncio.Event(), False

        async def slow(_: WaitEnded) -> None:
            nonlocal done
            began.set()
            await may_end.wait()
            done = True

        told = Told(layout)
        told.waits.tell(slow)
        told.waits.start()
        await began.wait()
        stopping = asyncio.create_task(told.waits.stop())
        may_end.set()
        await stopping
        assert done

    asyncio.run(scenario())


def _fail(what: str, error: BaseException | None) -> None:
    raise AssertionError(what) from error
