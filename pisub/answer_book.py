"""Answers that a resumed run has before it asks: those of the runs before it, and those that came with the resume.

Each answer is given once, to the same question (text and options), in the order in which they were given.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence

from pisub.errors import RefusedError
from pisub.protocol.checkpoint import Answer, AskResult, Question
from pisub.session_file import Session, SessionAnswer

_Key = tuple[str, tuple[str, ...]]


class AnswerBook:
    """The answers of one child's session, as it was when the run began.

    Args:
        session: Also gets every new answer, for a run that resumes this one.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[_Key, deque[Answer]] = {}
        for line in session.lines:
            if isinstance(line, SessionAnswer):
                self._known.setdefault(_key(line.question), deque()).append(line.answer)

    def take(self, batch: Sequence[Question]) -> tuple[Answer | None, ...]:
        """Return the answers that are known, one per question; each is given once."""
        return tuple(self._next(question) for question in batch)

    def note(self, batch: Sequence[Question], result: AskResult) -> None:
        """Write down what a human answered. A disk that is full keeps no answer from the agent."""
        for question, answer in zip(batch, result.answers, strict=False):
            if answer is not None:
                with contextlib.suppress(OSError, RefusedError):
                    self._session.write(SessionAnswer(question=question, answer=answer))

    def merge(self, known: Sequence[Answer | None], asked: AskResult) -> AskResult:
        """Return the result of a whole batch of which some answers were known. The status is that of the rest."""
        rest = iter(asked.answers)
        answers = tuple(next(rest, None) if answer is None else answer for answer in known)
        return AskResult(status=asked.status, answers=answers, reason=asked.reason, ask_id=asked.ask_id)

    def _next(self, question: Question) -> Answer | None:
        answers = self._known.get(_key(question))
        return answers.popleft() if answers else None


def _key(question: Question) -> _Key:
    return question.text, tuple(question.options)
