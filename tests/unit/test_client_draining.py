"""Waiting until nothing goes on: rounds, their one deadline, and what ends it early."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from pisub.client.background_work import BackgroundWork, WorkContext, WorkItem
from pisub.client.draining import IdleOutcome, wait_until_idle
from pisub.client.waiter import Waiter
from pisub.client.waiting import Identity, WaitEnd
from pisub.errors import InvalidArgumentError
from pisub.process import own_identity
from pisub.protocol.runs import RunState
from pisub.record.commit import commit_end
from pisub.record.layout import Layout
from pisub.record.lock import RunLock
from pisub.record.status import read_status, write_status
from pisub.runs.spec import RunSpec
from pisub.testing import FakeClock, fake_time
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


def drain(
    layout: Layout, *steps: tuple[float, Callable[[], object]], work: BackgroundWork | None = None, timeout_ms: int
) -> tuple[IdleOutcome, float]:
    """Wait; at each step's second something happens. Returns the outcome, and how many seconds it took."""

    async def scenario() -> tuple[IdleOutcome, float]:
        loop = asyncio.get_running_loop()
        for after_s, happens in steps:
            loop.call_later(after_s, happens)
        began = loop.time()
        outcome = await wait_until_idle(Waiter(layout, SESSION, work=work), timeout_ms=timeout_ms)
        return outcome, loop.time() - began

    return fake_time.run(scenario(), clock=FakeClock(wall_ms=NOW_MS))


def test_where_nothing_goes_on_it_is_over_at_once(layout: Layout) -> None:
    outcome, took_s = drain(layout, timeout_ms=60_000)
    assert (outcome, outcome.is_idle, took_s) == (IdleOutcome(end=WaitEnd.NOTHING), True, 0)


def test_what_begins_meanwhile_is_waited_for_too(layout: Layout) -> None:
    first = running(layout)
    later: list[RunSpec] = []

    def one_begins_as_one_ends() -> None:
        later.append(running(layout))
        end(layout, first)

    outcome, took_s = drain(
        layout,
        (2.5, one_begins_as_one_ends),
        (5.5, lambda: end(layout, later[0], RunState.STOPPED)),
        timeout_ms=60_000,
    )
    assert (outcome.end, outcome.is_idle, took_s) == (WaitEnd.NOTHING, True, pytest.approx(6))
    assert [(view.run_id, view.state) for view in outcome.views] == [
        (first.run_id, RunState.COMPLETE),
        (later[0].run_id, RunState.STOPPED),
    ]


def test_the_time_counts_for_all_rounds_together(layout: Layout) -> None:
    spec = running(layout)
    work = BackgroundWork()
    number = 0

    def listing(context: WorkContext) -> list[WorkItem]:
        return [WorkItem(id=f"job {number}", session_id=context.session_id)]

    def next_job() -> None:
        nonlocal number
        number += 1

    work.register("queue", listing)
    steps = [(0.5 + each, next_job) for each in range(20)]
    outcome, took_s = drain(layout, (1.2, lambda: end(layout, spec)), *steps, work=work, timeout_ms=10_000)
    assert (outcome.end, outcome.is_idle, took_s) == (WaitEnd.TIMEOUT, False, pytest.approx(10, abs=0.01))
    assert [each.provider for each in outcome.active] == ["queue"]


def test_the_first_failure_is_told_and_what_goes_on_beside_it_is_not_waited_for(layout: Layout) -> None:
    bad, later = running(layout), list[RunSpec]()

    def one_begins_as_one_fails() -> None:
        later.append(running(layout))
        end(layout, bad, RunState.FAILED)

    outcome, _ = drain(layout, (1.5, one_begins_as_one_fails), timeout_ms=60_000)
    assert (outcome.end, outcome.is_idle) == (WaitEnd.COMPLETED, False)
    assert [view.run_id for view in outcome.failed] == [bad.run_id]


def test_a_quiet_run_is_waited_through_and_one_that_waits_for_a_human_is_not(layout: Layout) -> None:
    quiet = running(layout, activity_state="needs_attention", activity_reason="quiet")
    outcome, took_s = drain(layout, (3.5, lambda: end(layout, quiet)), timeout_ms=60_000)
    assert (outcome.is_idle, took_s) == (True, pytest.approx(4))
    asking = running(layout, activity_state="needs_attention", activity_reason="waiting_for_human")
    outcome, took_s = drain(layout, timeout_ms=60_000)
    assert (outcome.end, outcome.active, took_s) == (WaitEnd.ATTENTION, (Identity(asking.run_id, SESSION),), 0)


def test_what_is_no_time_is_refused(layout: Layout) -> None:
    with pytest.raises(InvalidArgumentError, match="milliseconds"):
        drain(layout, timeout_ms=0)
