"""Records of a plain run, for tests that need one and do not care for its values."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pisub.ids import new_id
from pisub.process import ProcessIdentity, own_identity
from pisub.protocol.checkpoint import Answer, Question
from pisub.protocol.runs import RunState
from pisub.record.atomic import encode_record, write_new
from pisub.record.ends import initial_status
from pisub.record.layout import Layout
from pisub.record.model import AskRecord, OutcomeKind, QuestionOutcome, RunResult, Started
from pisub.record.status import write_status
from pisub.record.submit import submit_run
from pisub.runs.spec import AgentSnapshot, RunnerSpec, RunSpec

NOW_MS = 1_800_000_000_000
SESSION = "a session"
QUESTIONS = (Question("Which part?", ["core", "edge"]), Question("What for?"))


def make_layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "state", fsync=False)
    layout.prepare()
    return layout


def make_spec(
    run_id: str | None = None, *, session_id: str = SESSION, submitter: ProcessIdentity | None = None
) -> RunSpec:
    return RunSpec(
        run_id=run_id or new_id(),
        session_id=session_id,
        agent=AgentSnapshot(name="tester", runner=RunnerSpec(type="python", target="tests:agent")),
        task="a task",
        cwd="/",
        submitter=submitter or own_identity(),
        submitted_at=NOW_MS,
    )


def dead_identity() -> ProcessIdentity:
    """This process as it was in another start: a pid that was used again."""
    own = own_identity()
    return msgspec.structs.replace(own, start_ticks=own.start_ticks + 1)


def hidden_identity() -> ProcessIdentity:
    """A process in another pid namespace of this kernel: its pid cannot be looked at from here."""
    return msgspec.structs.replace(own_identity(), pid_namespace=1)


def make_result(spec: RunSpec, *, state: RunState = RunState.COMPLETE, output: str = "done") -> RunResult:
    is_success = state is RunState.COMPLETE
    return RunResult(
        run_id=spec.run_id,
        session_id=spec.session_id,
        agent=spec.agent.name,
        state=state,
        success=is_success,
        exit_code=0 if is_success else 1,
        summary=output,
        output=output,
        started_at=NOW_MS + 1,
        ended_at=NOW_MS + 1_000,
        duration_ms=999,
        cwd=spec.cwd,
    )


def submit(layout: Layout, **fields: object) -> RunSpec:
    spec = msgspec.structs.replace(make_spec(), **fields)
    assert submit_run(layout, spec)
    return spec


def start(layout: Layout, spec: RunSpec, process: ProcessIdentity) -> None:
    """Write what a runner writes when it begins."""
    paths = layout.run(spec.run_id)
    record = Started(run_id=spec.run_id, process=process, started_at=NOW_MS + 1)
    assert write_new(paths.started, encode_record(record), fsync=False)
    write_status(paths, initial_status(spec, process, started_at=NOW_MS + 1))


def make_ask(spec: RunSpec, *, ask_id: str | None = None, questions: tuple[Question, ...] = QUESTIONS) -> AskRecord:
    return AskRecord(
        ask_id=ask_id or new_id(),
        run_id=spec.run_id,
        session_id=spec.session_id,
        agent=spec.agent.name,
        questions=questions,
        asked_at=NOW_MS + 5,
        asker=own_identity(),
    )


def answered(ask_id: str, number: int, value: str, *, by: str = "cli") -> QuestionOutcome:
    return QuestionOutcome(
        ask_id=ask_id,
        number=number,
        kind=OutcomeKind.ANSWERED,
        answer=Answer(value=value, by=by, at=NOW_MS + 6),
        at=NOW_MS + 6,
    )


def files_of(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, by its relative path; temporary files included."""
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }
