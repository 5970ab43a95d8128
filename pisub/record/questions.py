"""A child's questions and what became of them, in create-once files: one outcome each, whoever is first.

Who answers writes the file here and then tells the runner; the file decides, the message hurries.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pisub.errors import (
    AmbiguousIdError,
    InvalidArgumentError,
    PisubError,
    QuestionClosedError,
    RecordCorruptError,
    RecordError,
    UnknownQuestionError,
)
from pisub.ids import check_id, check_prefix, is_id
from pisub.protocol.base import Record
from pisub.protocol.checkpoint import Answer, AskResult, AskStatus, Question
from pisub.protocol.limits import MAX_ANSWER_CHARS, MAX_QUESTIONS
from pisub.record.atomic import encode_record, exists, read_bytes, read_record, remove, write_new
from pisub.record.dirs import check_dir, list_names, make_dir
from pisub.record.layout import AskPaths, Layout, RunPaths
from pisub.record.model import AskOutcome, AskRecord, OutcomeKind, QuestionOutcome
from pisub.record.reader import as_problem
from pisub.utf8 import is_utf8

_REFERENCE = re.compile(r"([0-9A-Za-z]+)(?:\.([0-9]{1,3}))?", re.ASCII)
_MAX_CANDIDATES = 8


class AskView(Record, frozen=True, kw_only=True):
    """An ask, as its files have it.

    Attributes:
        record: The batch.
        outcomes: What became of each question that is no longer open, by its number from 1.
        outcome: The result that the child got; None while the ask is open.
    """

    record: AskRecord
    outcomes: dict[int, QuestionOutcome] = {}
    outcome: AskOutcome | None = None

    @property
    def open_numbers(self) -> tuple[int, ...]:
        """Numbers of the questions that can still be answered."""
        if self.outcome is not None:
            return ()
        return tuple(n for n in range(1, len(self.record.questions) + 1) if n not in self.outcomes)


def open_ask(layout: Layout, record: AskRecord) -> bool:
    """Write a batch of questions. By the run's runner only. False when this ask exists already.

    Raises:
        InvalidIdError: An id is not one.
        RecordError: The run does not exist.
        OSError: The disk is full, or the like.
    """
    run = layout.run(record.run_id)
    ask = run.ask(record.ask_id)
    if not check_dir(run.dir):
        raise RecordError(f"Run {record.run_id} has no directory: it cannot ask.")
    make_dir(run.asks)
    make_dir(ask.dir)
    if exists(ask.record):
        return False
    # The marker first: an ask that nobody can find would wait for ever.
    write_new(layout.open_asks / record.ask_id, record.run_id.encode(), fsync=False)
    return write_new(ask.record, encode_record(record), fsync=False)


def record_outcome(layout: Layout, run_id: str, outcome: QuestionOutcome) -> QuestionOutcome:
    """Say what became of a question, unless somebody has. The answer is on the disk when this returns.

    Returns:
        The one outcome of the question: the given one, or that of whoever was first.

    Raises:
        InvalidArgumentError: The answer does not fit the question; ``field`` is ``answer``.
        UnknownQuestionError: There is no such question.
        QuestionClosedError: The ask ended without an outcome of this question.
        OSError: The disk is full, or the like; the question is still open.
    """
    run, ask = _find(layout, run_id, outcome.ask_id)
    record = _read_batch(run, ask)
    if not 1 <= outcome.number <= len(record.questions):
        raise UnknownQuestionError(f"Ask {record.ask_id} has no question {outcome.number}.")
    _check(record.questions[outcome.number - 1], outcome)
    path = ask.question(outcome.number)
    if exists(ask.outcome) and not exists(path):
        raise QuestionClosedError(f"Ask {record.ask_id} has ended; question {outcome.number} got no answer in time.")
    if write_new(path, encode_record(outcome), fsync=layout.fsync):
        return outcome
    winner = read_record(path, QuestionOutcome)
    if winner is None:
        raise RecordCorruptError(f"{path} was removed while it was read.")
    return winner


def close_ask(layout: Layout, run_id: str, outcome: AskOutcome) -> AskOutcome:
    """End an ask with the result that the child gets, unless it has ended. By the run's runner, or reconciliation.

    Returns:
        The one result of the ask: the given one, or the earlier one.

    Raises:
        UnknownQuestionError: There is no such ask.
        OSError: The disk is full, or the like; the ask is still open.
    """
    _, ask = _find(layout, run_id, outcome.ask_id)
    if not check_dir(ask.dir):
        raise UnknownQuestionError(f"Run {run_id} has no ask {outcome.ask_id}.")
    winner: AskOutcome | None = outcome
    if not write_new(ask.outcome, encode_record(outcome), fsync=layout.fsync):
        winner = read_record(ask.outcome, AskOutcome)
    remove(layout.open_asks / outcome.ask_id)
    if winner is None:
        raise RecordCorruptError(f"{ask.outcome} was removed while it was read.")
    return winner


def close_open_asks(layout: Layout, run_id: str, *, reason: str, at: int) -> int:
    """End every ask of a run that has ended, as cancelled, answers kept. Returns how many were open.

    An ask whose files cannot be read is ended too, without answers.

    Raises:
        OSError: The disk is full, or the like.
    """
    run = layout.run(run_id)
    closed = 0
    try:
        ask_ids = [each for each in list_names(run.asks) if is_id(each)]
    except RecordError:
        return 0  # no directory of ours: what lies there ends no run and holds up none
    for ask_id in ask_ids:
        if exists(run.ask(ask_id).outcome):
            remove(layout.open_asks / ask_id)
            continue
        answers: tuple[Answer | None, ...] = ()
        try:
            view = read_ask(layout, run_id, ask_id)
            found = (view.outcomes.get(number) for number in range(1, len(view.record.questions) + 1))
            answers = tuple(None if each is None else each.answer for each in found)
        except (PisubError, OSError):
            pass  # the child is gone; what matters is that nobody is asked any more
        result = AskResult(status=AskStatus.CANCELLED, answers=answers, reason=reason, ask_id=ask_id)
        try:
            close_ask(layout, run_id, AskOutcome(ask_id=ask_id, result=result, at=at))
        except PisubError:  # damaged beyond an outcome: it is closed by its marker's removal
            remove(layout.open_asks / ask_id)
        closed += 1
    return closed


def read_ask(layout: Layout, run_id: str, ask_id: str) -> AskView:
    """Read an ask and what became of its questions.

    Raises:
        InvalidIdError: An id is not one.
        UnknownQuestionError: There is no such ask.
        RecordCorruptError: A file of it does not parse.
    """
    run, ask = _find(layout, run_id, ask_id)
    record = _read_batch(run, ask)
    # The result before the outcomes: an ask that is seen to be over is seen with all that it is over with.
    outcome = read_record(ask.outcome, AskOutcome)
    outcomes: dict[int, QuestionOutcome] = {}
    for number in range(1, min(len(record.questions), MAX_QUESTIONS) + 1):
        found = read_record(ask.question(number), QuestionOutcome)
        if found is not None:
            outcomes[number] = found
    return AskView(record=record, outcomes=outcomes, outcome=outcome)


def list_open_asks(
    layout: Layout, *, session_id: str | None = None, on_problem: Callable[[str, PisubError], None] | None = None
) -> list[AskView]:
    """Read the asks that are open, oldest first.

    Args:
        layout: The record.
        session_id: Only asks of this session.
        on_problem: Told the id and the error of each ask that cannot be read. It hides no other ask.
    """
    views: list[AskView] = []
    for ask_id in sorted(filter(is_id, list_names(layout.open_asks))):
        try:
            run_id = read_marker(layout, ask_id)
            view = None if run_id is None else read_ask(layout, run_id, ask_id)
        except UnknownQuestionError:
            continue  # its asker died, or is, between the marker and the batch
        except (PisubError, OSError) as error:
            if on_problem is not None:
                on_problem(ask_id, as_problem(f"Ask {ask_id}", error))
            continue
        if view is not None and view.outcome is None and session_id in (None, view.record.session_id):
            views.append(view)
    return views


def already_closed(outcome: QuestionOutcome) -> QuestionClosedError:
    """Return the error for a second outcome of a question: it says what the first was, and whose."""
    by = f" by {outcome.answer.by}" if outcome.answer is not None else ""
    return QuestionClosedError(f"Question {outcome.ask_id}.{outcome.number} was {outcome.kind}{by} already.")


def find_question(layout: Layout, text: str) -> tuple[AskView, int]:
    """Return the open question that a text means: ``<ask id or prefix>``, or that with ``.<number>``.

    Without a number it is the first of the batch that is still open.

    Raises:
        InvalidIdError: The text cannot mean a question.
        UnknownQuestionError: No open question fits.
        AmbiguousIdError: Several asks fit.
        QuestionClosedError: The question has its outcome.
    """
    match = _REFERENCE.fullmatch(text)
    prefix = check_prefix(match[1] if match else text, what="question id")
    fits = sorted(name for name in list_names(layout.open_asks) if name.startswith(prefix) and is_id(name))
    if len(fits) > 1:
        raise AmbiguousIdError(
            f"{prefix} begins {len(fits)} open asks: give more of it.", candidates=tuple(fits[:_MAX_CANDIDATES])
        )
    run_id = read_marker(layout, fits[0]) if fits else None
    if run_id is None:
        raise UnknownQuestionError(
            f"No open question begins with {prefix}: it may have its answer already (see `pisub questions`)."
        )
    view = read_ask(layout, run_id, fits[0])
    if view.outcome is not None:
        raise QuestionClosedError(f"Ask {fits[0]} has ended: {view.outcome.result.status}.")
    if match is not None and match[2] is not None:
        number = int(match[2])
    elif view.open_numbers:
        number = view.open_numbers[0]
    else:
        raise QuestionClosedError(f"Every question of ask {fits[0]} has its outcome.")
    if not 1 <= number <= len(view.record.questions):
        raise UnknownQuestionError(f"Ask {fits[0]} has {len(view.record.questions)} questions, no {number}.")
    if number in view.outcomes:
        raise already_closed(view.outcomes[number])
    return view, number


def read_marker(layout: Layout, ask_id: str) -> str | None:
    """Return the id of the run that has an open ask; None when the ask is not open.

    Raises:
        RecordCorruptError: The marker holds no run id.
    """
    path = layout.open_asks / check_id(ask_id, what="ask id")
    data = read_bytes(path)
    if data is None:
        return None
    text = data.decode("ascii", "replace")
    if not is_id(text):
        raise RecordCorruptError(f"{path} does not hold a run id.")
    return text


def _find(layout: Layout, run_id: str, ask_id: str) -> tuple[RunPaths, AskPaths]:
    run = layout.run(run_id)
    ask = run.ask(ask_id)
    if not (check_dir(run.dir) and check_dir(run.asks)):
        raise UnknownQuestionError(f"Run {run_id} has no ask {ask_id}.")
    return run, ask


def _read_batch(run: RunPaths, ask: AskPaths) -> AskRecord:
    record = read_record(ask.record, AskRecord)
    if record is None:
        raise UnknownQuestionError(f"Run {run.run_id} has no ask {ask.dir.name}.")
    if record.run_id != run.run_id or record.ask_id != ask.dir.name:
        raise RecordCorruptError(f"{ask.record} belongs to another ask: it was moved or copied.")
    return record


def _check(question: Question, outcome: QuestionOutcome) -> None:
    if (outcome.kind is OutcomeKind.ANSWERED) != (outcome.answer is not None):
        raise InvalidArgumentError("An answer goes with the kind `answered`, and with no other.", field="answer")
    if outcome.answer is None:
        return
    value = outcome.answer.value
    if question.options and value not in question.options:
        raise InvalidArgumentError(f"Choose one of: {', '.join(map(repr, question.options))}.", field="answer")
    if not is_utf8(value):
        raise InvalidArgumentError("The answer is not valid UTF-8 text.", field="answer")
    if len(value) > MAX_ANSWER_CHARS:
        raise InvalidArgumentError(f"An answer has at most {MAX_ANSWER_CHARS} characters.", field="answer")
