"""Open questions, and their outcomes, for whoever answers them without being the session's host. Files alone, no loop.

A question has one outcome, whoever is first.
"""

from __future__ import annotations

from pisub.asking import chosen_value
from pisub.client.caller import require_person
from pisub.clock import SystemClock
from pisub.errors import RecordError
from pisub.protocol.base import Record
from pisub.protocol.checkpoint import Answer
from pisub.record.layout import Layout
from pisub.record.model import AskRecord, OutcomeKind, QuestionOutcome
from pisub.record.questions import already_closed, find_question, record_outcome


class OpenQuestion(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One question that waits. ``id`` is what an answer names; ``number`` is which of ``count`` in its batch."""

    id: str
    ask_id: str
    number: int
    count: int
    run_id: str
    session_id: str
    agent: str
    label: str
    why: str
    text: str
    options: tuple[str, ...]
    placeholder: str
    asked_at: int


def open_question(record: AskRecord, number: int, prefix: str = "") -> OpenQuestion:
    """Return a question of an ask; ``prefix`` is how its id begins, '' the whole of it."""
    question = record.questions[number - 1]
    return OpenQuestion(
        id=f"{prefix or record.ask_id}.{number}",
        ask_id=record.ask_id,
        number=number,
        count=len(record.questions),
        run_id=record.run_id,
        session_id=record.session_id,
        agent=record.agent,
        label=record.label,
        why=record.why,
        text=question.text,
        options=tuple(question.options),
        placeholder=question.placeholder,
        asked_at=record.asked_at,
    )


def give_outcome(
    layout: Layout, reference: str, *, value: str | None, reason: str = "", by: str
) -> tuple[AskRecord, QuestionOutcome]:
    """Answer a question, or without a value decline it. Blocks on files; tells nobody.

    Args:
        layout: The record.
        reference: Its id, or a beginning of that which fits no other open ask.
        value: The answer: of a question with options one of them, or its number.
        reason: Why it is declined; the child is told.
        by: Who says so.

    Raises:
        InvalidIdError, AmbiguousIdError: The reference means no one question.
        UnknownQuestionError: No open question fits.
        QuestionClosedError: It has its outcome; the message says which, and whose.
        InvalidArgumentError: The value is no answer to it; ``field`` is ``answer``.
        RefusedError: This process belongs to a run (``child_refused``): a child answers no question.
        RecordError: The answer cannot be written. The question is still open.
    """
    ask, number = find_question(layout, reference)
    at = SystemClock().wall_ms()
    answer = None
    if value is not None:
        answer = Answer(value=chosen_value(ask.record.questions[number - 1], value), by=by, at=at)
    require_person(layout, "answer a question")
    outcome = QuestionOutcome(
        ask_id=ask.record.ask_id,
        number=number,
        kind=OutcomeKind.DECLINED if answer is None else OutcomeKind.ANSWERED,
        answer=answer,
        reason=reason,
        at=at,
    )
    try:
        won = record_outcome(layout, ask.record.run_id, outcome)
    except OSError as error:
        raise RecordError(
            f"The outcome of question {reference} cannot be written ({error.strerror}): it is still open. "
            f"Make room in {layout.root}, and say it again."
        ) from error
    if won != outcome:
        raise already_closed(won)
    return ask.record, won
