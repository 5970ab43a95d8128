"""What a run's files say while it runs and when it ends, with a clock that is set by hand."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pisub.config import Settings
from pisub.engines import base as eng
from pisub.process import own_identity
from pisub.protocol.runs import RunState
from pisub.record.control import request_control
from pisub.record.journal import Journal, JournalReader
from pisub.record.layout import Layout, RunPaths
from pisub.record.model import ControlRequest
from pisub.record.status import read_status
from pisub.runs.attention import Thresholds
from pisub.runs.spec import RunnerSpec, RunSpec
from pisub.runs.usage import Tokens, Usage
from runner.effects import Verdict
from runner.events import Cause, EndRequested
from runner.inbox import Inbox
from runner.machine import Phase, Snapshot
from runner.recorder import Recorder
from tests.support.runner_runs import submit

START_MS = 1_000_000


class HandClock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """Return the time set."""
        return self.now

    def wall_ms(self) -> int:
        """Return the time set, as Unix time."""
        return START_MS + round(self.now * 1000)


def snapshot(phase: Phase = Phase.RUNNING, *, is_waiting: bool = False, stopped: bool = False) -> Snapshot:
    return Snapshot(
        phase=phase,
        stopped=stopped,
        timed_out=False,
        reason=None,
        error=None,
        remaining_s=8.0,
        waited_s=1.5 if is_waiting else 0.0,
        is_waiting=is_waiting,
    )


@pytest.fixture
def spec(settings: Settings, tmp_path: Path) -> RunSpec:
    return submit(settings, RunnerSpec(type="python", target="x:y"), cwd=tmp_path, timeout_ms=10_000)


@pytest.fixture
def paths(settings: Settings, spec: RunSpec) -> RunPaths:
    return Layout.of(settings).run(spec.run_id)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def recorder(spec: RunSpec, paths: RunPaths, clock: HandClock) -> Iterator[Recorder]:
    with Journal.open(paths, spec.run_id, now_ms=START_MS) as journal:
        yield Recorder(
            paths,
            spec,
            journal,
            process=own_identity(),
            started_at=START_MS,
            clock=clock,
            thresholds=Thresholds(),
        )


def lines(paths: RunPaths) -> list[tuple[str, dict[str, object]]]:
    return [(event.type, event.data) for event in JournalReader(paths.events).read_new()]


def test_a_status_waits_for_others_like_it_but_a_change_of_state_does_not(recorder: Recorder, paths: RunPaths) -> None:
    recorder.take(eng.ToolStarted(1, "read", {}), 0.0)
    recorder.flush(snapshot(), 0.05)
    assert read_status(paths) is None
    assert recorder.next_deadline() == 0.1
    recorder.flush(snapshot(), 0.1)
    status = read_status(paths)
    assert status is not None
    assert (status.current_tool, status.tool_count) == ("read", 1)
    assert recorder.next_deadline() == 240.0  # one tool at work for so long is said
    recorder.mark_status(0.2, at_once=True)
    recorder.flush(snapshot(stopped=True), 0.2)
    status = read_status(paths)
    assert status is not None
    assert (status.stopped, status.state, status.steps[0].status) == (True, RunState.RUNNING, "stopped")


def test_the_deadline_is_absent_while_a_human_is_waited_for(recorder: Recorder, clock: HandClock) -> None:
    clock.now = 2.0
    running, waiting = recorder.status(snapshot()), recorder.status(snapshot(is_waiting=True))
    assert (running.deadline_at, running.remaining_ms) == (START_MS + 10_000, 8_000)
    assert (waiting.deadline_at, waiting.remaining_ms, waiting.waiting_for_human_ms) == (None, 8_000, 1_500)
    assert (waiting.activity_state, waiting.activity_reason) == ("needs_attention", "waiting_for_human")


def test_output_becomes_lines_whatever_the_pieces_it_came_in(recorder: Recorder, paths: RunPaths) -> None:
    for piece in (b"on", b"e\r\ntw\xc3", b"\xa9\n\xff", b"three", b"x" * 9_000):
        recorder.take(eng.OutputBytes("stdout", piece), 0.0)
    recorder.take(eng.OutputBytes("stderr", b"other\n"), 0.0)
    recorder.close_output()
    recorder.flush(snapshot(), 0.0)
    long = "\ufffdthree" + "x" * 9_000
    assert lines(paths) == [
        ("subagent.child.stdout", {"text": "one"}),
        ("subagent.child.stdout", {"text": "twé"}),
        ("subagent.child.stdout", {"text": long[:8192]}),
        ("subagent.child.stderr", {"text": "other"}),
        ("subagent.child.stdout", {"text": long[8192:]}),
    ]


def test_a_tool_s_duration_is_measured(recorder: Recorder, paths: RunPaths) -> None:
    recorder.take(eng.ToolStarted(1, "read", {"path": "x"}), 1.0)
    recorder.take(eng.ToolEnded(1, "read", is_error=True), 1.25)
    recorder.flush(snapshot(), 2.0)
    assert lines(paths) == [
        ("subagent.tool.started", {"tool": "read", "args": {"path": "x"}, "callId": 1}),
        ("subagent.tool.completed", {"tool": "read", "callId": 1, "durationMs": 250, "isError": True}),
    ]


def test_what_a_child_says_that_it_used_is_added_up_in_status_step_and_result(
    recorder: Recorder, paths: RunPaths
) -> None:
    assert recorder.status(snapshot()).usage is None
    recorder.take(eng.UsageReported(Usage(input=10, output=3, cache_read=5, cost=0.25, turns=1), "one"), 0.0)
    recorder.take(eng.UsageReported(Usage(input=1, cache_write=2, turns=1)), 0.0)
    status, result = recorder.end(
        Verdict(RunState.COMPLETE, None, None, 0, eng.Settled(), True, False, False, False), snapshot()
    )
    total = Usage(input=11, output=3, cache_read=5, cache_write=2, cost=0.25, turns=2)
    assert (status.usage, result.usage) == (total, total)
    tokens = Tokens(input=11, output=3, total=14)
    assert (status.turn_count, status.total_tokens, status.total_cost) == (2, tokens, 0.25)
    assert (status.steps[0].tokens, status.steps[0].model) == (tokens, "one")
    recorder.flush(snapshot(), 1.0)
    assert [kind for kind, _ in lines(paths)] == ["subagent.child.usage"] * 2


def test_a_status_names_the_file_that_a_tool_works_on(recorder: Recorder) -> None:
    recorder.take(eng.ToolStarted(1, "read", {"path": "src/x.py"}), 0.0)
    recorder.take(eng.ToolStarted(2, "count", {"path": 3}), 0.0)
    assert (recorder.status(snapshot()).current_tool, recorder.status(snapshot()).current_path) == ("count", None)
    recorder.take(eng.ToolEnded(2, "count"), 0.0)
    assert recorder.status(snapshot()).current_path == "src/x.py"


def test_a_result_says_how_it_ended_and_where_its_files_are(
    recorder: Recorder, clock: HandClock, spec: RunSpec
) -> None:
    recorder.take(eng.ArtifactWritten("b.txt", 1), 0.0)
    recorder.take(eng.ArtifactWritten("a/c.txt", 1), 0.0)
    clock.now = 3.0
    verdict = Verdict(
        state=RunState.COMPLETE,
        reason=None,
        error=None,
        exit_code=0,
        settled=eng.Settled(text="\n The first line.\nmore"),
        is_cleanup_proven=False,
        is_engine_hung=False,
        was_stopped=False,
        has_timed_out=False,
    )
    _, result = recorder.end(verdict, snapshot(Phase.ENDED))
    assert (result.summary, result.output) == ("The first line.", "\n The first line.\nmore")
    assert (result.artifacts, result.cleanup) == (("artifacts/a/c.txt", "artifacts/b.txt"), "unproven")
    assert (result.started_at, result.ended_at, result.duration_ms) == (START_MS, START_MS + 3_000, 3_000)
    assert (result.run_id, result.output_path, result.output_sha256) == (spec.run_id, None, None)


def test_half_a_character_in_a_result_is_replaced(recorder: Recorder) -> None:
    verdict = Verdict(RunState.COMPLETE, None, None, 0, eng.Settled(text="a\ud800b"), True, False, False, False)
    _, result = recorder.end(verdict, snapshot(Phase.ENDED))
    assert result.output == "a?b"


def test_requests_are_read_strongest_first_and_each_once(paths: RunPaths) -> None:
    for kind in ("interrupt", "stop"):
        request = ControlRequest(type=kind, requested_at=1, by=own_identity(), source="cli", reason="enough")
        request_control(paths, request)
    inbox = Inbox(paths)
    assert inbox.read() == [
        EndRequested(Cause.STOP, "stop", "Stopped: enough."),
        EndRequested(Cause.INTERRUPT, "interrupt", "Interrupted: enough."),
    ]
    assert inbox.read() == []


def test_a_request_that_cannot_be_read_still_counts(paths: RunPaths) -> None:
    paths.request("stop").write_bytes(b"\0 nonsense")
    assert [event.cause for event in Inbox(paths).read()] == [Cause.STOP]
