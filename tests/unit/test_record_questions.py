from __future__ import annotations

from pathlib import Path

import pytest

from pisub.errors import (
    AmbiguousIdError,
    InvalidArgumentError,
    InvalidIdError,
    PisubError,
    QuestionClosedError,
    RecordCorruptError,
    UnknownQuestionError,
)
from pisub.ids import new_id
from pisub.protocol.checkpoint import Answer, AskResult, AskStatus
from pisub.record.layout import Layout
from pisub.record.model import AskOutcome, AskRecord, OutcomeKind, QuestionOutcome
from pisub.record.questions import (
    AskView,
    close_ask,
    close_open_asks,
    find_question,
    list_open_asks,
    open_ask,
    read_ask,
    record_outcome,
)
from tests.support.record_samples import NOW_MS, SESSION, answered, make_ask, make_layout, submit


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return make_layout(tmp_path)


@pytest.fixture
def ask(layout: Layout) -> AskRecord:
    record = make_ask(submit(layout))
    assert open_ask(layout, record)
    return record


def outcome_of(ask: AskRecord, status: AskStatus = AskStatus.OK) -> AskOutcome:
    return AskOutcome(ask_id=ask.ask_id, result=AskResult(status=status, ask_id=ask.ask_id), at=NOW_MS + 9)


def test_an_ask_is_opened_once_and_found_by_its_session(layout: Layout, ask: AskRecord) -> None:
    assert open_ask(layout, ask) is False
    assert list_open_asks(layout) == list_open_asks(layout, session_id=SESSION) == [AskView(record=ask)]
    assert list_open_asks(layout, session_id="another") == []


def test_a_question_has_one_outcome_and_everybody_gets_that_one(layout: Layout, ask: AskRecord) -> None:
    first, second = answered(ask.ask_id, 1, "core", by="a"), answered(ask.ask_id, 1, "edge", by="b")
    assert [record_outcome(layout, ask.run_id, each) for each in (first, second)] == [first, first]
    view = read_ask(layout, ask.run_id, ask.ask_id)
    assert (view.outcomes, view.open_numbers) == ({1: first}, (2,))


def test_an_answer_must_fit_its_question(layout: Layout, ask: AskRecord) -> None:
    wrong_kind = QuestionOutcome(
        ask_id=ask.ask_id, number=2, kind=OutcomeKind.EXPIRED, answer=Answer(value="x", by="", at=1), at=1
    )
    no_answer = QuestionOutcome(ask_id=ask.ask_id, number=2, kind=OutcomeKind.ANSWERED, at=1)
    for bad in (answered(ask.ask_id, 1, "neither"), answered(ask.ask_id, 2, "x" * 32_001), wrong_kind, no_answer):
        with pytest.raises(InvalidArgumentError) as caught:
            record_outcome(layout, ask.run_id, bad)
        assert caught.value.field == "answer"
    for number in (0, 3, -1):
        with pytest.raises(UnknownQuestionError):
            record_outcome(layout, ask.run_id, answered(ask.ask_id, number, "x"))
    assert read_ask(layout, ask.run_id, ask.ask_id) == AskView(record=ask)


def test_a_closed_ask_is_no_longer_listed_and_takes_no_answer(layout: Layout, ask: AskRecord) -> None:
    kept = record_outcome(layout, ask.run_id, answered(ask.ask_id, 1, "core"))
    ended = outcome_of(ask, AskStatus.TIMEOUT)
    assert close_ask(layout, ask.run_id, ended) == ended
    assert close_ask(layout, ask.run_id, outcome_of(ask)) == ended, "the first result is the result"
    with pytest.raises(QuestionClosedError):
        record_outcome(layout, ask.run_id, answered(ask.ask_id, 2, "late"))
    assert record_outcome(layout, ask.run_id, answered(ask.ask_id, 1, "edge")) == kept
    assert list_open_asks(layout) == []
    assert read_ask(layout, ask.run_id, ask.ask_id) == AskView(record=ask, outcomes={1: kept}, outcome=ended)


def test_a_reference_means_the_first_open_question_or_the_named_one(layout: Layout, ask: AskRecord) -> None:
    prefix = ask.ask_id[:8]
    assert [find_question(layout, text)[1] for text in (ask.ask_id, prefix.upper(), f"{prefix}.2")] == [1, 1, 2]
    record_outcome(layout, ask.run_id, answered(ask.ask_id, 1, "core"))
    assert find_question(layout, prefix)[1] == 2
    for text, error in (
        (f"{prefix}.1", QuestionClosedError),
        (f"{prefix}.3", UnknownQuestionError),
        ("zzzz", UnknownQuestionError),
        ("abc", InvalidIdError),
        (f"../{prefix}", InvalidIdError),
        (f"{prefix}.0", UnknownQuestionError),
    ):
        with pytest.raises(error):
            find_question(layout, text)


def test_a_prefix_of_two_open_asks_is_ambiguous(layout: Layout) -> None:
    spec = submit(layout)
    for _ in range(2):
        open_ask(layout, make_ask(spec, ask_id=new_id(at_ms=NOW_MS)))
    with pytest.raises(AmbiguousIdError):
        find_question(layout, new_id(at_ms=NOW_MS)[:8])


def test_one_bad_ask_hides_no_other(layout: Layout, ask: AskRecord) -> None:
    bad = make_ask(submit(layout))
    open_ask(layout, bad)
    layout.run(bad.run_id).ask(bad.ask_id).record.write_bytes(b"{\n}\n")
    no_run = new_id()
    (layout.open_asks / no_run).write_bytes(b"../../etc")
    problems: list[tuple[str, type[PisubError]]] = []
    views = list_open_asks(layout, on_problem=lambda ask_id, error: problems.append((ask_id, type(error))))
    assert views == [AskView(record=ask)]
    assert sorted(problems) == sorted([(bad.ask_id, RecordCorruptError), (no_run, RecordCorruptError)])


def test_a_marker_without_a_batch_is_no_ask(layout: Layout) -> None:
    spec = submit(layout)
    (layout.open_asks / new_id()).write_bytes(spec.run_id.encode())
    assert list_open_asks(layout) == []


def test_the_end_of_a_run_ends_its_asks_and_keeps_the_answers_given(layout: Layout, ask: AskRecord) -> None:
    kept = record_outcome(layout, ask.run_id, answered(ask.ask_id, 1, "core"))
    bad_id = new_id()
    bad_dir = layout.run(ask.run_id).ask(bad_id).dir
    bad_dir.mkdir(mode=0o700)
    (layout.open_asks / bad_id).write_bytes(ask.run_id.encode())
    assert close_open_asks(layout, ask.run_id, reason="over", at=7) == 2
    assert close_open_asks(layout, ask.run_id, reason="again", at=8) == 0
    expected = AskResult(status=AskStatus.CANCELLED, answers=(kept.answer, None), reason="over", ask_id=ask.ask_id)
    assert read_ask(layout, ask.run_id, ask.ask_id).outcome == AskOutcome(ask_id=ask.ask_id, result=expected, at=7)
    assert list(layout.open_asks.iterdir()) == []


def test_a_run_or_ask_that_does_not_exist_has_no_questions(layout: Layout, ask: AskRecord) -> None:
    for run_id, ask_id in ((new_id(), ask.ask_id), (ask.run_id, new_id())):
        with pytest.raises(UnknownQuestionError):
            read_ask(layout, run_id, ask_id)
        with pytest.raises(UnknownQuestionError):
            record_outcome(layout, run_id, answered(ask_id, 1, "core"))
        with pytest.raises(UnknownQuestionError):
            close_ask(layout, run_id, AskOutcome(ask_id=ask_id, result=AskResult(status=AskStatus.OK), at=1))
