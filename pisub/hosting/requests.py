"""What a host accepts as an ask. The asker's side checks too; a host trusts no child that it checks itself."""

from __future__ import annotations

from pisub import arguments
from pisub.errors import InvalidArgumentError
from pisub.hosting.own_asks import OWN_AGENT
from pisub.hosting.queue_events import Ask
from pisub.ids import check_id, new_id
from pisub.protocol.checkpoint import AskRequest, Question
from pisub.protocol.limits import (
    MAX_DURATION_MS,
    MAX_OPTION_CHARS,
    MAX_OPTIONS,
    MAX_QUESTION_CHARS,
    MAX_QUESTIONS,
)
from pisub.record.model import AskRecord

_MAX_NAME_CHARS = 500


def to_ask(request: AskRequest | AskRecord, session_id: str) -> Ask:
    """Check a batch and bring it into the queue's form. A time of 0 is no limit, as in the settings.

    Raises:
        InvalidIdError: An id is none.
        InvalidArgumentError: A count, length or time is out of bounds; ``field`` names it.
    """
    check_id(request.ask_id, what="ask id")
    check_id(request.run_id)
    check_questions(request.questions)
    for name, text in (("agent", request.agent), ("label", request.label)):
        if len(text) > _MAX_NAME_CHARS:
            raise InvalidArgumentError(f"The {name} has more than {_MAX_NAME_CHARS} characters.", field=name)
    if len(request.why) > MAX_QUESTION_CHARS:
        raise InvalidArgumentError(f"The reason has more than {MAX_QUESTION_CHARS} characters.", field="why")
    return Ask(
        ask_id=request.ask_id,
        run_id=request.run_id,
        session_id=session_id,
        agent=request.agent,
        questions=request.questions,
        label=request.label,
        depth=request.depth,
        root_run_id=request.root_run_id if isinstance(request, AskRecord) else "",
        why=request.why,
        asked_at=request.asked_at,
        timeout_s=_seconds(request.timeout_ms, "timeoutMs"),
        question_timeout_s=_seconds(request.question_timeout_ms, "questionTimeoutMs"),
    )


def own_ask(
    questions: tuple[Question, ...],
    session_id: str,
    *,
    why: str,
    asked_at: int,
    timeout_ms: int,
    question_timeout_ms: int,
) -> Ask:
    """Make a batch of a host's own. Times are in milliseconds, 0 is no limit.

    Raises:
        InvalidArgumentError: A length or time is out of bounds; ``field`` names it.
    """
    if len(arguments.text(why, "why")) > MAX_QUESTION_CHARS:
        raise InvalidArgumentError(f"The reason has more than {MAX_QUESTION_CHARS} characters.", field="why")
    return Ask(
        ask_id=new_id(at_ms=asked_at),
        run_id="",
        session_id=session_id,
        agent=OWN_AGENT,
        questions=questions,
        why=why,
        asked_at=asked_at,
        timeout_s=_seconds(timeout_ms, "timeout_ms"),
        question_timeout_s=_seconds(question_timeout_ms, "question_timeout_ms"),
    )


def check_questions(questions: tuple[Question, ...]) -> None:
    """Check a batch's questions.

    Raises:
        InvalidArgumentError: There are none or too many, or one is not as ``Question`` says.
    """
    if not 1 <= len(questions) <= MAX_QUESTIONS:
        raise InvalidArgumentError(
            f"A batch has 1 to {MAX_QUESTIONS} questions, not {len(questions)}.", field="questions"
        )
    for number, question in enumerate(questions, start=1):
        if not question.text.strip() or len(question.text) > MAX_QUESTION_CHARS:
            raise InvalidArgumentError(
                f"Question {number}: a text of 1 to {MAX_QUESTION_CHARS} characters is needed.", field="text"
            )
        if len(question.placeholder) > MAX_OPTION_CHARS:
            raise InvalidArgumentError(
                f"Question {number}: a placeholder has at most {MAX_OPTION_CHARS} characters.", field="placeholder"
            )
        _check_options(number, tuple(question.options))


def _check_options(number: int, options: tuple[str, ...]) -> None:
    if not options:
        return
    if not 2 <= len(options) <= MAX_OPTIONS or len(set(options)) != len(options):
        raise InvalidArgumentError(f"Question {number}: give 2 to {MAX_OPTIONS} different options.", field="options")
    if any(not option.strip() or len(option) > MAX_OPTION_CHARS for option in options):
        raise InvalidArgumentError(
            f"Question {number}: an option has 1 to {MAX_OPTION_CHARS} characters.", field="options"
        )


def _seconds(milliseconds: int | None, field: str) -> float | None:
    if milliseconds is None or milliseconds == 0:
        return None
    if not 0 < milliseconds <= MAX_DURATION_MS:
        raise InvalidArgumentError(f"{field} is {milliseconds}: use 1 to {MAX_DURATION_MS}, or null.", field=field)
    return milliseconds / 1000
