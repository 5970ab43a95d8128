from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pisub.client.background_work import BackgroundWork, WorkContext, WorkItem
from pisub.client.bg_wait import ToolResult, bg_wait
from pisub.client.waiter import Waiter
from pisub.client.waiting import Identity, WaitEnd
from pisub.ids import new_id
from pisub.process import own_identity
from pisub.record.commit import commit_end
from pisub.record.layout import Layout
from pisub.record.lock import RunLock
from pisub.record.status import read_status
from pisub.record.subscriptions import list_subscriptions
from pisub.runs.spec import RunSpec
from tests.support.record_samples import SESSION, make_layout, make_result, start, submit


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return make_layout(tmp_path)


def running(layout: Layout, **fields: object) -> RunSpec:
    spec = submit(layout, **fields)
    start(layout, spec, own_identity())
    return spec


def end(layout: Layout, spec: RunSpec) -> None:
    paths = layout.run(spec.run_id)
    status = read_status(paths)
    assert status is not None
    lock = RunLock.acquire(paths.lock)
    assert lock is not None
    with lock:
        commit_end(layout, lock, status, make_result(spec))


class Jobs:
    """A provider of work that is no run: it lists what the test tells it, look by look."""

    def __init__(self, *looks: Sequence[str] | Exception) -> None:
        self._looks = list(looks)

    def __call__(self, context: WorkContext) -> Sequence[WorkItem]:
        look = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]
        if isinstance(look, Exception):
            raise look
        return [WorkItem(id=each, session_id=context.session_id) for each in look]


def call(layout: Layout, parameters: dict[str, Any], *, jobs: Jobs | None = None, **options: Any) -> ToolResult:
    work = BackgroundWork()
    if jobs is not None:
        work.register("queue", jobs)
    waiter = Waiter(layout, SESSION, work=work, poll_ms=250)
    session_id = options.pop("session_id", SESSION)
    return asyncio.run(bg_wait(waiter, session_id, parameters, **options))


def test_a_run_that_ended_is_told_with_its_end_and_without_its_text(layout: Layout) -> None:
    spec = running(layout)
    end(layout, spec)
    result = call(layout, {"id": spec.run_id[:20]})
    [completion] = result.details["completions"]
    assert (result.is_error, result.text) == (False, f"{spec.run_id} has ended.")
    assert (completion["runId"], completion["state"], completion["success"]) == (spec.run_id, "complete", True)
    assert "done" not in str(result.details)


def test_a_wait_sees_an_end_that_no_message_told_of(layout: Layout) -> None:
    spec = running(layout)
    waiter = Waiter(layout, SESSION, poll_ms=250)

    async def scenario() -> ToolResult:
        waiting = asyncio.create_task(bg_wait(waiter, SESSION, {}))
        await asyncio.sleep(0)
        await asyncio.to_thread(end, layout, spec)
        return await waiting

    result = asyncio.run(scenario())
    assert (result.is_error, result.text) in {
        (False, f"Ended: {spec.run_id}."),
        (False, "Nothing is active: there is nothing to wait for."),
    }


def test_the_end_of_time_lists_what_goes_on_and_stops_nothing(layout: Layout) -> None:
    spec = running(layout)
    result = call(layout, {"all": True, "timeoutMs": 1})
    assert (result.is_error, f"Still active: {spec.run_id}" in result.text) == (True, True)


def test_an_abort_ends_the_wait(layout: Layout) -> None:
    running(layout)
    abort = asyncio.Event()
    abort.set()
    result = call(layout, {}, abort=abort)
    assert (result.is_error, "broken off" in result.text) == (True, True)


def test_runs_of_other_sessions_and_nested_ones_are_not_waited_for(layout: Layout) -> None:
    parent = submit(layout)
    end_by_id = running(layout, parent_run_id=parent.run_id)
    running(layout, session_id="another")
    start(layout, parent, own_identity())
    end(layout, parent)
    assert call(layout, {"all": True}).text == "Nothing is active: there is nothing to wait for."
    assert call(layout, {"id": end_by_id.run_id, "timeoutMs": 1}).is_error


@pytest.mark.parametrize(
    ("parameters", "options", "part"),
    [
        ({"nonBlocking": True}, {}, "needs an id"),
        ({"nonBlocking": True, "id": "x", "all": True}, {}, "leave out all"),
        ({"nonBlocking": True, "id": "x"}, {"is_headless": True}, "nobody is there"),
        ({"id": "0000"}, {}, "No run of this session"),
        ({"id": "../x"}, {}, "No run of this session"),
        ({"unknown": 1}, {}, "unknown"),
        ({"all": "yes"}, {}, "bool"),
        ({}, {"session_id": ""}, "no session"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_in_words(
    layout: Layout, parameters: dict[str, Any], options: dict[str, Any], part: str
) -> None:
    result = call(layout, parameters, **options)
    assert (result.is_error, part in result.text) == (True, True), result.text


def test_an_ambiguous_beginning_lists_the_ids_and_a_whole_id_is_never_ambiguous(layout: Layout) -> None:
    ids = [new_id(at_ms=1), new_id(at_ms=1)]
    for run_id in ids:
        running(layout, run_id=run_id)
    result = call(layout, {"id": ids[0][:8]})
    assert result.is_error
    assert all(each in result.text for each in ids)
    assert "Still active" in call(layout, {"id": ids[0], "timeoutMs": 1}).text


def test_a_run_that_is_a_symlink_is_refused_though_the_session_names_it(layout: Layout, tmp_path: Path) -> None:
    elsewhere = make_layout(tmp_path / "elsewhere")
    real = running(elsewhere)
    (layout.runs / real.run_id).symlink_to(elsewhere.run(real.run_id).dir)
    running(layout)
    (layout.session(SESSION).runs / real.run_id).touch()
    result = call(layout, {"id": real.run_id})
    assert (result.is_error, "is a symlink" in result.text) == (True, True), result.text


def test_switched_off_it_returns_at_once_and_subscribes_to_nothing(layout: Layout) -> None:
    spec = running(layout)
    result = call(layout, {"id": spec.run_id, "nonBlocking": True}, is_enabled=False)
    assert (result.is_error, list_subscriptions(layout)) == (False, [])


def test_a_wait_that_does_not_block_is_a_file_that_names_the_whole_id(layout: Layout) -> None:
    spec = running(layout)
    result = call(layout, {"id": spec.run_id[:22], "nonBlocking": True, "timeoutMs": 5_000})
    [found] = list_subscriptions(layout, session_id=SESSION)
    assert (found.token, found.run_id, found.requested_id) == (
        result.details["token"],
        spec.run_id,
        spec.run_id[:22],
    )
    assert found.expires_at == found.created_at + 5_000


def test_a_time_of_nothing_is_not_given(layout: Layout) -> None:
    assert call(layout, {"timeoutMs": 0}).text == "Nothing is active: there is nothing to wait for."


def test_a_providers_work_is_waited_for_by_identity_though_as_many_go_on(layout: Layout) -> None:
    result = call(layout, {}, jobs=Jobs(["a", "b"], ["b", "c"]))
    assert (result.is_error, result.text) == (False, "Ended: queue/a. Still active: queue/b.")


def test_all_of_a_providers_work_is_what_it_had_at_the_begin(layout: Layout) -> None:
    result = call(layout, {"all": True}, jobs=Jobs(["a", "b"], ["b", "c"], ["c"]))
    assert (result.is_error, result.text) == (False, "Ended: queue/a, queue/b.")


def test_a_provider_that_raises_confirms_nothing_and_is_named(layout: Layout) -> None:
    for jobs in (Jobs(ValueError("broken")), Jobs(["a"], ValueError("broken"))):
        result = call(layout, {}, jobs=jobs)
        assert (result.is_error, result.text) == (
            True,
            "Completion cannot be confirmed: provider queue: list_active_work failed: broken",
        )


def test_a_provider_that_goes_while_its_work_is_waited_for_is_an_error_and_a_replaced_one_is_not(
    layout: Layout,
) -> None:
    async def scenario() -> None:
        for is_replaced in (False, True):
            work = BackgroundWork()
            asked = asyncio.Event()

            def listing(context: WorkContext, asked: asyncio.Event = asked) -> list[WorkItem]:
                asked.set()
                return [WorkItem(id="a", session_id=context.session_id)]

            unregister = work.register("queue", listing)
            waiting = asyncio.create_task(Waiter(layout, SESSION, work=work, poll_ms=250).wait())
            await asked.wait()
            if is_replaced:
                work.register("queue", lambda _context: [])
            unregister()
            outcome = await waiting
            assert (outcome.end, outcome.verdict.reason) == (
                (WaitEnd.COMPLETED, "")
                if is_replaced
                else (
                    WaitEnd.UNCONFIRMED,
                    "provider queue: it is not registered any more, so the end of its work cannot be confirmed",
                )
            )

    asyncio.run(scenario())


def test_a_provider_that_hangs_holds_no_wait_past_its_time_or_its_abort(layout: Layout) -> None:
    async def scenario() -> None:
        for timeout_ms, is_aborted, end in ((300, False, WaitEnd.TIMEOUT), (60_000, True, WaitEnd.ABORTED)):
            work, abort, looks = BackgroundWork(), asyncio.Event(), 0

            async def listing(
                context: WorkContext, is_aborted: bool = is_aborted, abort: asyncio.Event = abort
            ) -> list[WorkItem]:
                nonlocal looks
                looks += 1
                if looks > 1:
                    if is_aborted:
                        abort.set()
                    await asyncio.Event().wait()
                return [WorkItem(id="a", session_id=context.session_id)]

            work.register("queue", listing)
            waiter = Waiter(layout, SESSION, work=work, poll_ms=250)
            outcome = await waiter.wait(timeout_ms=timeout_ms, abort=abort)
            assert (outcome.end, outcome.verdict.active) == (end, (Identity("a", SESSION, "queue"),))

    asyncio.run(scenario())


def test_a_wait_for_one_run_asks_no_provider(layout: Layout) -> None:
    spec = running(layout)
    end(layout, spec)
    result = call(layout, {"id": spec.run_id}, jobs=Jobs(AssertionError("asked")))
    assert (result.is_error, result.text) == (False, f"{spec.run_id} has ended.")
