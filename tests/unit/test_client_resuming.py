"""Which runs can be gone on with: every refusal, in its order, against runs whose files are made by hand."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from pisub.agents.definition import snapshot
from pisub.agents.discovery import discover
from pisub.client.resuming import ResumeRequest, match_answers, submit_resume
from pisub.config import DEPTH_VARIABLE, RUN_ID_VARIABLE, Settings
from pisub.errors import (
    InvalidArgumentError,
    LockBusyError,
    PisubError,
    RecordCorruptError,
    RefusedError,
    UnknownAgentError,
    UnknownRunError,
    UnsafePathError,
    UntrustedProjectError,
)
from pisub.ids import new_id
from pisub.process import own_identity
from pisub.protocol.checkpoint import Answer, Question
from pisub.protocol.runs import RunState
from pisub.record.atomic import encode_record, write_new
from pisub.record.commit import commit_end
from pisub.record.ends import initial_status
from pisub.record.layout import Layout
from pisub.record.lock import RunLock
from pisub.record.model import AskRecord, OutcomeKind, QuestionOutcome, RunResult, Started
from pisub.record.questions import open_ask, record_outcome
from pisub.record.reader import read_run
from pisub.record.retention import set_aside
from pisub.record.sessions_of_runs import ResumeClaim, begin_session
from pisub.record.submit import submit_run
from pisub.record.unanswered import Unanswered
from pisub.runs.spec import RunSpec
from pisub.session_file import Session, SessionAnswer, SessionHead, SessionMessage
from tests.support.project import Project
from tests.support.steered_project import make_steered_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_steered_project(tmp_path / "project")


def make_run(
    settings: Settings,
    project: Project,
    state: RunState | None = RunState.PAUSED,
    *,
    agent: str = "listen",
    remaining_ms: int | None = 5_000,
    has_session: bool = True,
    **fields: object,
) -> str:
    """Write a run that ended in this state, as its runner would have; None is one that this process still runs."""
    layout = Layout.of(settings)
    layout.prepare()
    now_ms = time.time_ns() // 1_000_000
    values: dict[str, object] = {
        "run_id": new_id(),
        "session_id": "s",
        "agent": snapshot(discover(settings, project.root).get(agent)),
        "task": "the task",
        "cwd": str(project.root),
        "submitter": own_identity(),
        "submitted_at": now_ms,
        "timeout_ms": 60_000,
    }
    spec = RunSpec(**(values | fields))  # type: ignore[arg-type]  # a table of defaults
    paths = layout.run(spec.run_id)
    submit_run(layout, spec)
    write_new(
        paths.started,
        encode_record(Started(run_id=spec.run_id, process=own_identity(), started_at=now_ms)),
        fsync=False,
    )
    if has_session:
        begin_session(paths, spec)
    status = msgspec.structs.replace(initial_status(spec, own_identity(), started_at=now_ms), remaining_ms=remaining_ms)
    if state is not None:
        with RunLock.acquire(paths.lock) as lock:  # type: ignore[union-attr]  # nobody else holds it
            result = RunResult(
                run_id=spec.run_id,
                session_id="s",
                agent=agent,
                state=state,
                success=state is RunState.COMPLETE,
                exit_code=0,
                ended_at=now_ms,
            )
            commit_end(layout, lock, status, result)
    return spec.run_id


def resume(settings: Settings, run_id: str, **fields: object) -> RunSpec:
    values: dict[str, object] = {"run_id": run_id, "message": "go on", "environ": {}}
    request = ResumeRequest(**(values | fields))  # type: ignore[arg-type]  # a table of defaults
    return submit_resume(settings, Layout.of(settings), request).spec


def refusal(settings: Settings, run_id: str, **fields: object) -> tuple[type[PisubError], str]:
    with pytest.raises(PisubError) as refused:
        resume(settings, run_id, **fields)
    return type(refused.value), refused.value.code


@pytest.mark.parametrize("state", [RunState.PAUSED, RunState.COMPLETE, RunState.FAILED])
def test_what_was_paused_complete_or_failed_is_gone_on_with_and_only_its_work_time_is_charged(
    settings: Settings, project: Project, state: RunState
) -> None:
    source = make_run(settings, project, state, label="a label", stop_grace_ms=77)
    spec = resume(settings, source)
    old = read_run(Layout.of(settings), source).spec
    assert spec == msgspec.structs.replace(
        old,
        run_id=spec.run_id,
        submitted_at=spec.submitted_at,
        launch=spec.launch,
        timeout_ms=5_000,
        resumed_from=source,
        resume_message="go on",
    )
    session = Session(Layout.of(settings).run(spec.run_id).session)
    assert session.is_resumed
    assert session.lines == (
        SessionHead(run_id=source, agent="listen"),
        SessionMessage(kind="task", text="the task"),
        SessionHead(run_id=spec.run_id, agent="listen", resumed_from=source),
        SessionMessage(kind="resume", text="go on"),
    )


@pytest.mark.parametrize(
    ("state", "code"),
    [(RunState.STOPPED, "run_stopped"), (None, "run_not_ended"), (RunState.REJECTED, "run_rejected")],
)
def test_what_was_stopped_goes_on_or_was_rejected_is_not(
    settings: Settings, project: Project, state: RunState | None, code: str
) -> None:
    # The first reason counts: none of these has a session or work time left either.
    run_id = make_run(settings, project, state, has_session=False, remaining_ms=0)
    assert refusal(settings, run_id) == (RefusedError, code)


def test_a_run_of_another_session_is_not_found(settings: Settings, project: Project) -> None:
    run_id = make_run(settings, project, RunState.STOPPED)
    assert refusal(settings, run_id, session_id="other") == (UnknownRunError, "unknown_run")
    assert refusal(settings, run_id, session_id="s") == (RefusedError, "run_stopped")
    assert refusal(settings, new_id()) == (UnknownRunError, "unknown_run")


def test_a_program_keeps_no_session(settings: Settings, project: Project) -> None:
    assert refusal(settings, make_run(settings, project, agent="script")) == (RefusedError, "resume_unsupported")


def test_a_session_file_that_is_missing_damaged_or_a_symlink_is_refused(settings: Settings, project: Project) -> None:
    run_id = make_run(settings, project, has_session=False)
    path = Layout.of(settings).run(run_id).session
    assert refusal(settings, run_id) == (RefusedError, "session_missing")
    path.write_text('{"type":"entry","value":1}\n')
    assert refusal(settings, run_id) == (RecordCorruptError, "record_corrupt")
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert refusal(settings, run_id) == (UnsafePathError, "unsafe_path")


def test_a_spec_that_does_not_parse_is_damage_and_not_missing(settings: Settings, project: Project) -> None:
    run_id = make_run(settings, project)
    Layout.of(settings).run(run_id).spec.write_text("{}\n}\n")
    assert refusal(settings, run_id) == (RecordCorruptError, "record_corrupt")


def test_an_agent_that_is_gone_or_changed_since_it_was_trusted_does_not_run(
    settings: Settings, project: Project
) -> None:
    run_id = make_run(settings, project)
    file = project.root / ".pisub" / "agents" / "listen.md"
    file.write_text(file.read_text() + "changed\n")
    assert refusal(settings, run_id) == (UntrustedProjectError, "untrusted_project")
    file.unlink()
    assert refusal(settings, run_id) == (UnknownAgentError, "unknown_agent")


def test_no_work_time_a_gone_directory_and_an_empty_message_are_refused(settings: Settings, project: Project) -> None:
    assert refusal(settings, make_run(settings, project, remaining_ms=0)) == (RefusedError, "budget_exhausted")
    assert resume(settings, make_run(settings, project, timeout_ms=None, remaining_ms=None)).timeout_ms is None
    assert refusal(settings, make_run(settings, project), message=" ") == (InvalidArgumentError, "invalid_argument")
    layout, run_id = Layout.of(settings), make_run(settings, project)
    spec = msgspec.structs.replace(read_run(layout, run_id).spec, cwd=str(project.root / "removed since"))
    layout.run(run_id).spec.write_bytes(encode_record(spec))
    assert refusal(settings, run_id) == (InvalidArgumentError, "invalid_argument")


def test_a_resume_is_checked_for_its_depth(
    settings: Settings, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = make_run(settings, project)
    deep = make_run(settings, project, None, depth=settings.max_depth)
    monkeypatch.setenv(RUN_ID_VARIABLE, deep)
    monkeypatch.setenv(DEPTH_VARIABLE, str(settings.max_depth))
    assert refusal(settings, run_id) == (RefusedError, "depth_exceeded")


def test_a_right_to_ask_that_was_not_there_does_not_come_with_a_resume(settings: Settings, project: Project) -> None:
    agent = msgspec.structs.replace(snapshot(discover(settings, project.root).get("listen")), can_ask=False)
    layout = Layout.of(settings)
    run_id = make_run(settings, project)
    spec = msgspec.structs.replace(read_run(layout, run_id).spec, agent=agent)
    layout.run(run_id).spec.write_bytes(encode_record(spec))
    assert not resume(settings, run_id).agent.can_ask


def test_while_one_run_goes_on_with_it_another_is_told_which(settings: Settings, project: Project) -> None:
    run_id = make_run(settings, project)
    first = resume(settings, run_id)
    with pytest.raises(RefusedError, match=first.run_id) as refused:
        resume(settings, run_id)
    assert refused.value.code == "session_in_use"


def test_a_claim_whose_claimant_died_before_its_run_existed_is_in_nobody_s_way(
    settings: Settings, project: Project
) -> None:
    run_id = make_run(settings, project)
    claim = ResumeClaim(source_run_id=run_id, run_id=new_id(), claimed_at=1, pid=1)
    write_new(Layout.of(settings).run(run_id).resumed(1), encode_record(claim), fsync=False)
    assert resume(settings, run_id).resumed_from == run_id


def test_a_held_lock_is_somebody_at_work(settings: Settings, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pisub.client.resuming._LOCK_WAIT_S", 0.05)
    run_id = make_run(settings, project)
    with RunLock.acquire(Layout.of(settings).run(run_id).lock):  # type: ignore[union-attr]  # nobody else holds it
        assert refusal(settings, run_id) == (LockBusyError, "lock_busy")


QUESTIONS = (
    Unanswered("01m8qzsvt5gm0910y8qefspn5v", 1, Question("Which?", options=["left", "right"])),
    Unanswered("01m8qzsvt5gm0910y8qefspn5v", 2, Question("a=b?")),
)


@pytest.mark.parametrize("name", ["1", "Which?", "01m8qzsvt5gm0910y8qefspn5v.1"])
def test_a_question_is_named_by_number_text_or_id(name: str) -> None:
    assert match_answers(QUESTIONS, [(name, "2")]) == [(QUESTIONS[0], "right")]


@pytest.mark.parametrize(
    "answers", [[("3", "x")], [("01m8", "x")], [("1", "up")], [("1", "left"), ("Which?", "right")], [("2", " ")]]
)
def test_an_answer_that_names_none_or_is_none_is_refused(answers: list[tuple[str, str]]) -> None:
    with pytest.raises(InvalidArgumentError):
        match_answers(QUESTIONS, answers)


def test_answers_of_the_session_are_given_once_each_in_order(tmp_path: Path) -> None:
    from pisub.answer_book import AnswerBook  # noqa: PLC0415  # beside what it is about

    path = tmp_path / "session.jsonl"
    path.touch()
    session = Session(path)
    session.write(SessionHead(run_id="r", agent="a"))
    again = Question("Again?")
    for value in ("one", "two"):
        session.write(SessionAnswer(question=again, answer=Answer(value=value, by="x", at=1)))
    with path.open("ab") as file:
        file.write(b'{"type":"entry","va')  # torn by a kill
    book = AnswerBook(Session(path))
    taken = [book.take([again, Question("Other?")]) for _ in range(3)]
    assert [[answer and answer.value for answer in answers] for answers in taken] == [
        ["one", None],
        ["two", None],
        [None, None],
    ]
    resumed = Session(path)
    resumed.append({"step": 3})
    assert Session(path).read() == [{"step": 3}]


def test_of_a_resume_and_a_removal_at_once_the_resume_has_the_session_or_is_told_that_the_run_is_gone(
    settings: Settings, project: Project
) -> None:
    layout = Layout.of(settings)
    far_ms = time.time_ns() // 1_000_000 + 10**12
    with ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            source = make_run(settings, project, RunState.COMPLETE)
            barrier = threading.Barrier(2)

            def go_on(source: str = source, barrier: threading.Barrier = barrier) -> str:
                barrier.wait()
                try:
                    spec = resume(settings, source)
                except UnknownRunError as error:
                    return error.code
                return str(len(Session(layout.run(spec.run_id).session).lines))

            def remove(source: str = source, barrier: threading.Barrier = barrier) -> None:
                barrier.wait()
                # Up to the source: to a clock so far ahead the run that goes on with it is as old.
                looked_at = set_aside(layout, now_ms=far_ms, with_undelivered=True)
                next((each for each in looked_at if each.run_id == source), None)

            outcome, removal = pool.submit(go_on), pool.submit(remove)
            removal.result()
            assert outcome.result() in {"4", "gone"}


def test_an_answer_that_a_killed_run_did_not_write_down_is_in_the_session_of_the_next_once(
    settings: Settings, project: Project
) -> None:
    layout = Layout.of(settings)
    source = make_run(settings, project)
    which, why = Question("Which?", options=["left", "right"]), Question("Why?")
    ask = AskRecord(
        ask_id=new_id(),
        run_id=source,
        session_id="s",
        agent="listen",
        questions=(which, why, Question("Never answered?")),
        asked_at=1,
        asker=own_identity(),
    )
    open_ask(layout, ask)
    answers = [Answer(value=value, by="cli", at=number) for number, value in enumerate(("left", "because"), start=1)]
    for number, answer in enumerate(answers, start=1):
        outcome = QuestionOutcome(ask_id=ask.ask_id, number=number, kind=OutcomeKind.ANSWERED, answer=answer, at=1)
        record_outcome(layout, source, outcome)
    Session(layout.run(source).session).write(SessionAnswer(question=which, answer=answers[0]))
    spec = resume(settings, source, answers=(("Never answered?", "now"),))
    lines = Session(layout.run(spec.run_id).session).lines
    assert [(each.question.text, each.answer.value) for each in lines if isinstance(each, SessionAnswer)] == [
        ("Which?", "left"),
        ("Why?", "because"),
        ("Never answered?", "now"),
    ]
