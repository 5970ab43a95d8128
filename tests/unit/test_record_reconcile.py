from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from pisub.errors import PisubError, RecordCorruptError, RecordError
from pisub.process import ProcessIdentity, own_identity
from pisub.protocol.checkpoint import AskStatus
from pisub.protocol.runs import RunState
from pisub.record.atomic import encode_record, replace, write_new
from pisub.record.commit import CommitStep, commit_end
from pisub.record.control import consume, request_control
from pisub.record.ends import end_status, initial_status
from pisub.record.journal import REPAIRED, Journal, JournalReader
from pisub.record.layout import Layout
from pisub.record.lock import RunLock
from pisub.record.model import ControlRequest, ProcessTerminalProof, ResultItem, RunResult
from pisub.record.pairs import READINGS
from pisub.record.questions import list_open_asks, open_ask, read_ask
from pisub.record.reader import list_runs, read_files, read_run
from pisub.record.results import write_pending
from pisub.record.sessions import Outbox, completion_of
from pisub.record.status import read_status
from pisub.runs.reconcile import reconcile, reconcile_all
from pisub.runs.spec import RunSpec
from tests.support.record_samples import (
    NOW_MS,
    SESSION,
    dead_identity,
    files_of,
    hidden_identity,
    make_ask,
    make_layout,
    make_result,
    start,
    submit,
)

LATER_MS = NOW_MS + 500_000


class KilledError(Exception):
    """Stands for a kill: nothing after it runs."""


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return make_layout(tmp_path)


def started_run(layout: Layout, process: ProcessIdentity | None = None) -> RunSpec:
    spec = submit(layout)
    start(layout, spec, process or dead_identity())
    return spec


def types(layout: Layout, spec: RunSpec) -> list[str]:
    return [event.type for event in JournalReader(layout.run(spec.run_id).events).read_new()]


def killer(at: CommitStep | None) -> Callable[[CommitStep], None]:
    def on_step(step: CommitStep) -> None:
        if step is at:
            raise KilledError

    return on_step


def end(layout: Layout, spec: RunSpec, result: RunResult, *, killed_after: CommitStep | None = None) -> None:
    """End a run as a runner does; it may be killed after a step."""
    paths = layout.run(spec.run_id)
    status = read_status(paths)
    assert status is not None
    with RunLock.acquire(paths.lock) or pytest.fail("busy") as lock, Journal.open(paths, spec.run_id) as journal:
        commit_end(
            layout,
            lock,
            status,
            result,
            journal=journal,
            lines=[("subagent.run.completed", {"status": "complete"})],
            on_step=killer(killed_after),
        )


def test_a_commit_leaves_a_finished_run_one_completion_and_no_marker(layout: Layout) -> None:
    spec = started_run(layout)
    result = make_result(spec)
    end(layout, spec, result)
    view = read_run(layout, spec.run_id)
    paths = layout.run(spec.run_id)
    assert (view.state, view.result, view.needs_reconcile) == (RunState.COMPLETE, result, False)
    assert view.status == end_status(initial_status(spec, dead_identity(), started_at=NOW_MS + 1), result)
    assert view.status.steps[0].status == "complete"
    assert Outbox(layout, SESSION).pending() == [completion_of(result)]
    assert (list(layout.active.iterdir()), paths.pending_result.exists()) == ([], False)
    assert types(layout, spec) == ["subagent.run.completed"]


@pytest.mark.parametrize("step", list(CommitStep))
def test_a_commit_cut_off_after_any_step_is_finished_to_the_same_files(layout: Layout, step: CommitStep) -> None:
    spec = started_run(layout)
    whole = files_after(layout, spec, None)
    paths = layout.run(spec.run_id)
    with pytest.raises(KilledError):
        end(layout, spec, make_result(spec), killed_after=step)
    files = read_files(layout, paths)
    assert files.reading.is_allowed
    assert read_run(layout, spec.run_id).state is RunState.COMPLETE, "the end is the end from its first file on"
    view = reconcile(layout, spec.run_id, now_ms=LATER_MS)
    after = files_of(layout.root)
    journal = f"runs/{spec.run_id}/events.jsonl"
    was_closed = step not in (CommitStep.PENDING, CommitStep.STATUS, CommitStep.RESULT, CommitStep.PENDING_REMOVED)
    assert types(layout, spec) == ["subagent.run.completed" if was_closed else "subagent.run.repaired_stale"]
    assert {**after, journal: b""} == {**whole, journal: b""}
    assert (view.state, view.needs_reconcile) == (RunState.COMPLETE, False)
    assert reconcile(layout, spec.run_id, now_ms=LATER_MS + 1) == view
    assert files_of(layout.root) == after, "and a second time changes nothing"


def files_after(layout: Layout, spec: RunSpec, step: CommitStep | None) -> dict[str, bytes]:
    """The files of an undisturbed end, taken in a twin of the record."""
    twin = Layout(layout.root.with_name("twin"), fsync=False)
    twin.prepare()
    submit(twin, **msgspec.structs.asdict(spec))
    start(twin, spec, dead_identity())
    end(twin, spec, make_result(spec), killed_after=step)
    return files_of(twin.root)


@pytest.mark.parametrize("step", list(CommitStep))
def test_a_reconciler_cut_off_after_any_step_is_followed_by_another(
    layout: Layout, step: CommitStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = started_run(layout)
    twin = Layout(layout.root.with_name("twin"), fsync=False)
    twin.prepare()
    submit(twin, **msgspec.structs.asdict(spec))
    start(twin, spec, dead_identity())
    reconcile(twin, spec.run_id, now_ms=LATER_MS)

    def cut_off(*args: object, **options: object) -> RunResult:
        return commit_end(*args, **options, on_step=killer(step))  # type: ignore[arg-type]  # passed through

    with monkeypatch.context() as patch:
        patch.setattr("pisub.runs.reconcile.commit_end", cut_off)
        with pytest.raises(KilledError):
            reconcile(layout, spec.run_id, now_ms=LATER_MS)
    reconcile(layout, spec.run_id, now_ms=LATER_MS + 77)
    journal = f"runs/{spec.run_id}/events.jsonl"
    assert {**files_of(layout.root), journal: b""} == {**files_of(twin.root), journal: b""}
    assert types(layout, spec) == ["subagent.run.repaired_stale"]


def test_a_commit_that_failed_can_be_tried_again(layout: Layout) -> None:
    spec = started_run(layout)
    for step in CommitStep:
        with pytest.raises(KilledError):
            end(layout, spec, make_result(spec), killed_after=step)
    end(layout, spec, make_result(spec))
    assert types(layout, spec) == ["subagent.run.completed"]
    assert len(Outbox(layout, SESSION).pending()) == 1


def test_the_first_public_result_is_the_result_whatever_comes_later(layout: Layout) -> None:
    spec = started_run(layout)
    end(layout, spec, make_result(spec))
    end(layout, spec, make_result(spec, state=RunState.STOPPED))
    view = read_run(layout, spec.run_id)
    assert (view.state, view.status.state if view.status else None) == (RunState.COMPLETE, RunState.COMPLETE)


def test_only_the_holder_of_the_lock_ends_a_run(layout: Layout) -> None:
    spec, other = started_run(layout), started_run(layout)
    status = initial_status(spec, dead_identity(), started_at=1)
    foreign = RunLock.acquire(layout.run(other.run_id).lock) or pytest.fail("busy")
    released = RunLock.acquire(layout.run(spec.run_id).lock) or pytest.fail("busy")
    released.release()
    for lock in (foreign, released):
        with pytest.raises(RecordError) as caught:
            commit_end(layout, lock, status, make_result(spec))
        assert caught.value.code == "lock_not_held"
    foreign.release()
    assert read_run(layout, spec.run_id).state is RunState.RUNNING


@pytest.mark.parametrize(
    ("proof", "reason", "says", "ended_at"),
    [
        ({"signal": "SIGKILL"}, "runner-died", "killed by SIGKILL", NOW_MS + 40),
        ({"signal": "SIGKILL", "is_out_of_memory": True}, "out-of-memory", "memory ran out", NOW_MS + 40),
        ({"exit_code": 7}, "runner-died", "exit code 7", NOW_MS + 40),
        (None, "runner-died", "nobody saw how", NOW_MS + 1),
    ],
)
def test_a_dead_runner_is_a_failure_that_names_its_cause(
    layout: Layout, proof: dict[str, object] | None, reason: str, says: str, ended_at: int
) -> None:
    spec = started_run(layout)
    paths = layout.run(spec.run_id)
    paths.stderr_log.write_text("Traceback\nMemoryError\n")
    if proof is not None:
        record = ProcessTerminalProof(run_id=spec.run_id, state="observed", observed_at=NOW_MS + 40, **proof)  # type: ignore[arg-type]
        write_new(paths.process_terminal, encode_record(record), fsync=False)
    view = reconcile(layout, spec.run_id, now_ms=LATER_MS)
    result = view.result
    assert result is not None
    assert (view.state, result.reason, result.ended_at, result.signal) == (
        RunState.FAILED,
        reason,
        ended_at,
        (proof or {}).get("signal"),
    )
    assert says in result.summary
    assert result.error == f"{result.summary}\nTraceback\nMemoryError"
    assert view.status is not None
    assert (view.status.state, [step.status for step in view.status.steps]) == (RunState.FAILED, ["failed"])
    assert Outbox(layout, SESSION).pending() == [completion_of(result)]
    assert types(layout, spec) == ["subagent.run.repaired_stale"]


def test_the_duration_is_frozen_at_the_last_sign_of_life(layout: Layout) -> None:
    spec = started_run(layout)
    with Journal.open(layout.run(spec.run_id), spec.run_id) as journal:
        journal.append("subagent.child.log", ts=NOW_MS + 3_001)
        journal.flush()
    result = reconcile(layout, spec.run_id, now_ms=LATER_MS).result
    assert result is not None
    assert (result.ended_at, result.duration_ms) == (NOW_MS + 3_001, 3_000)


def test_a_run_of_an_earlier_boot_failed_by_the_reboot(layout: Layout) -> None:
    spec = started_run(layout, msgspec.structs.replace(own_identity(), boot_id="an earlier boot"))
    result = reconcile(layout, spec.run_id, now_ms=LATER_MS).result
    assert (result.reason if result else None) == "reboot"


def stop_request(at: int) -> ControlRequest:
    return ControlRequest(type="stop", requested_at=at, by=own_identity(), reason="enough")


@pytest.mark.parametrize(
    ("kind", "requested_at", "is_taken", "state", "reason"),
    [
        ("stop", NOW_MS + 39, False, RunState.STOPPED, "stop"),
        ("stop", NOW_MS + 39, True, RunState.STOPPED, "stop"),
        ("stop", NOW_MS + 41, False, RunState.FAILED, "runner-died"),
        ("timeout", NOW_MS + 39, True, RunState.FAILED, "timeout"),
        ("interrupt", NOW_MS + 39, True, RunState.FAILED, "runner-died"),
    ],
)
def test_a_death_that_was_asked_for_before_is_that_end(
    layout: Layout, kind: str, requested_at: int, *, is_taken: bool, state: RunState, reason: str
) -> None:
    spec = started_run(layout)
    paths = layout.run(spec.run_id)
    request_control(paths, msgspec.structs.replace(stop_request(requested_at), type=kind))
    if is_taken:
        consume(paths, kind)
    proof = ProcessTerminalProof(run_id=spec.run_id, state="observed", observed_at=NOW_MS + 40, signal="SIGKILL")
    write_new(paths.process_terminal, encode_record(proof), fsync=False)
    view = reconcile(layout, spec.run_id, now_ms=LATER_MS)
    assert (view.state, view.result.reason if view.result else None) == (state, reason)
    assert view.status is not None
    assert (view.status.stopped, view.status.timed_out) == (kind == state.value[:4], kind == "timeout")


def test_a_living_runner_is_left_alone_by_process_and_by_lock(layout: Layout) -> None:
    by_process = started_run(layout, own_identity())
    by_lock = started_run(layout)
    before = files_of(layout.run(by_process.run_id).dir)
    assert reconcile(layout, by_process.run_id, now_ms=LATER_MS).state is RunState.RUNNING
    assert files_of(layout.run(by_process.run_id).dir) == before
    with RunLock.acquire(layout.run(by_lock.run_id).lock) or pytest.fail("busy"):
        assert reconcile(layout, by_lock.run_id, now_ms=LATER_MS).state is RunState.RUNNING
    assert reconcile(layout, by_lock.run_id, now_ms=LATER_MS).state is RunState.FAILED


def test_a_queued_run_is_left_alone_while_its_submitter_lives_or_may_live(layout: Layout) -> None:
    for submitter in (own_identity(), hidden_identity(), msgspec.structs.replace(own_identity(), start_ticks=0)):
        spec = submit(layout, submitter=submitter)
        before = files_of(layout.root)
        assert reconcile(layout, spec.run_id, now_ms=LATER_MS).state is RunState.QUEUED
        assert files_of(layout.root) == before


@pytest.mark.parametrize("error", [None, "No nursery answers."])
def test_a_run_that_never_started_fails_when_its_launcher_is_dead_or_says_so(layout: Layout, error: str | None) -> None:
    spec = submit(layout, submitter=dead_identity() if error is None else own_identity())
    view = reconcile(layout, spec.run_id, now_ms=LATER_MS, launch_error=error)
    result = view.result
    assert result is not None
    assert (view.state, result.reason, result.ended_at, result.duration_ms, result.cleanup) == (
        RunState.FAILED,
        "never-started",
        LATER_MS,
        0,
        "proven",
    )
    assert result.summary == (error or "The run never started: its launcher or its process died.")
    assert [each.run_id for each in Outbox(layout, SESSION).pending()] == [spec.run_id]


def test_a_startup_that_broke_is_told_with_the_end_of_what_it_wrote_at_the_first_look(layout: Layout) -> None:
    spec = submit(layout, submitter=own_identity())
    layout.run(spec.run_id).stderr_log.write_text("x" * 100_000 + "\nImportError: no module named mine\n")
    error = "Its process ended before it began (exit code 70)."
    result = reconcile(layout, spec.run_id, now_ms=LATER_MS, launch_error=error).result
    assert result is not None
    assert (result.reason, result.summary) == ("never-started", error)
    assert result.error is not None
    assert result.error.startswith(f"{error}\nx")
    assert result.error.endswith("\nImportError: no module named mine")
    assert len(result.error) == len(error) + 1 + 4_000


def test_a_launch_error_does_not_end_a_run_that_started(layout: Layout) -> None:
    spec = started_run(layout, own_identity())
    assert reconcile(layout, spec.run_id, now_ms=LATER_MS, launch_error="lost").state is RunState.RUNNING


def test_a_person_can_end_what_is_unknown_and_nothing_that_lives(layout: Layout) -> None:
    unknown = started_run(layout, msgspec.structs.replace(own_identity(), start_ticks=0))
    alive = started_run(layout, own_identity())
    assert reconcile(layout, unknown.run_id, now_ms=LATER_MS).is_unknown
    view = reconcile(layout, unknown.run_id, now_ms=LATER_MS, declared_dead_by="ann")
    assert (view.state, view.result.reason if view.result else None) == (RunState.FAILED, "declared-dead")
    assert "ann" in (view.result.summary if view.result else "")
    assert reconcile(layout, alive.run_id, now_ms=LATER_MS, declared_dead_by="ann").state is RunState.RUNNING


def test_a_torn_start_is_a_start(layout: Layout) -> None:
    spec = submit(layout, submitter=dead_identity())
    layout.run(spec.run_id).started.write_bytes(b'{"run')
    view = reconcile(layout, spec.run_id, now_ms=LATER_MS)
    assert (view.state, view.result.reason if view.result else None) == (RunState.FAILED, "runner-died")


def test_a_terminal_status_whose_results_are_lost_gets_a_result_that_says_so(layout: Layout) -> None:
    spec = started_run(layout)
    paths = layout.run(spec.run_id)
    status = read_status(paths)
    assert status is not None
    replace(paths.status, encode_record(end_status(status, make_result(spec))), fsync=False)
    view = reconcile(layout, spec.run_id, now_ms=LATER_MS)
    assert view.result is not None
    assert (view.state, view.result.state, view.needs_reconcile) == (RunState.COMPLETE, RunState.COMPLETE, False)
    assert "lost" in view.result.summary


def test_a_pending_result_of_a_dead_runner_is_its_result(layout: Layout) -> None:
    spec = started_run(layout)
    result = make_result(spec, state=RunState.STOPPED)
    write_pending(layout.run(spec.run_id), result)
    view = reconcile(layout, spec.run_id, now_ms=LATER_MS)
    assert (view.state, view.result) == (RunState.STOPPED, result)
    assert READINGS[next(key for key, value in READINGS.items() if value.is_committed)].is_committed


def test_the_asks_of_a_dead_run_are_closed(layout: Layout) -> None:
    spec = started_run(layout)
    ask = make_ask(spec)
    open_ask(layout, ask)
    reconcile(layout, spec.run_id, now_ms=LATER_MS)
    outcome = read_ask(layout, spec.run_id, ask.ask_id).outcome
    assert (outcome.result.status if outcome else None, list_open_asks(layout)) == (AskStatus.CANCELLED, [])


def test_a_torn_journal_is_repaired_and_reported_with_the_run(layout: Layout) -> None:
    spec = started_run(layout)
    layout.run(spec.run_id).events.write_bytes(b'{"type":"subagent.ru')
    reconcile(layout, spec.run_id, now_ms=LATER_MS)
    assert types(layout, spec) == [REPAIRED, "subagent.run.repaired_stale"]


def test_a_journal_that_cannot_be_opened_does_not_keep_a_run_alive(layout: Layout) -> None:
    spec = started_run(layout)
    layout.run(spec.run_id).events.mkdir()
    assert reconcile(layout, spec.run_id, now_ms=LATER_MS).state is RunState.FAILED


def test_all_runs_are_reconciled_and_a_bad_one_stops_no_other(layout: Layout) -> None:
    bad, dead, alive, half = (
        started_run(layout),
        started_run(layout),
        started_run(layout, own_identity()),
        started_run(layout),
    )
    replace(layout.run(bad.run_id).status, b"{}\n}\n", fsync=False)
    with pytest.raises(KilledError):
        end(layout, half, make_result(half), killed_after=CommitStep.COMPLETION)
    (layout.active / "not an id").write_bytes(b"")
    problems: list[tuple[str, type[PisubError]]] = []
    views = reconcile_all(
        layout, now_ms=LATER_MS, on_problem=lambda run_id, error: problems.append((run_id, type(error)))
    )
    assert {view.run_id: view.state for view in views} == {
        dead.run_id: RunState.FAILED,
        alive.run_id: RunState.RUNNING,
        half.run_id: RunState.COMPLETE,
    }
    assert problems == [(bad.run_id, RecordCorruptError)]
    assert [view.run_id for view in list_runs(layout)] == [alive.run_id]
    assert {view.run_id for view in reconcile_all(layout, now_ms=LATER_MS)} == {alive.run_id}


def test_a_step_that_failed_inside_a_run_keeps_its_own_words(layout: Layout) -> None:
    spec = started_run(layout)
    status = read_status(layout.run(spec.run_id))
    assert status is not None
    item = ResultItem(agent="tester", success=False, exit_code=3, error="its own")
    result = msgspec.structs.replace(make_result(spec, state=RunState.FAILED), results=(item,), error="the run's")
    ended = end_status(status, result)
    assert [(step.status, step.exit_code, step.error) for step in ended.steps] == [("failed", 3, "its own")]
    assert end_status(ended, result) == ended
