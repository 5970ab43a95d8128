"""What became of a run's questions, for who goes on with it: those with an answer, and those that can get one."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pisub.errors import PisubError
from pisub.ids import is_id
from pisub.protocol.checkpoint import Answer, Question
from pisub.record.dirs import list_names
from pisub.record.layout import Layout
from pisub.record.questions import AskView, read_ask


class Unanswered(msgspec.Struct, frozen=True):
    """A question without an answer. ``reference`` names it on the command line, as ``pisub questions`` does."""

    ask_id: str
    number: int
    question: Question

    @property
    def reference(self) -> str:
        """The ask's id and the question's number in it."""
        return f"{self.ask_id}.{self.number}"


def question_key(question: Question) -> tuple[str, tuple[str, ...]]:
    """Return what makes two questions the same: text and options."""
    return question.text, tuple(question.options)


def list_unanswered(layout: Layout, run_id: str) -> list[Unanswered]:
    """Read a run's questions without an answer, oldest first. One that was asked again, and answered, is not one.

    Asks that cannot be read are left out.
    """
    answered = {question_key(question) for question, _ in list_answered(layout, run_id)}
    found: dict[tuple[str, tuple[str, ...]], Unanswered] = {}
    for view in _asks(layout, run_id):
        for number, question in enumerate(view.record.questions, start=1):
            found.setdefault(question_key(question), Unanswered(view.record.ask_id, number, question))
    return [each for key, each in found.items() if key not in answered]


def list_answered(layout: Layout, run_id: str) -> list[tuple[Question, Answer]]:
    """Read the answers that a run's questions got, in the order in which they were asked."""
    found: list[tuple[Question, Answer]] = []
    for view in _asks(layout, run_id):
        for number, question in enumerate(view.record.questions, start=1):
            outcome = view.outcomes.get(number)
            if outcome is not None and outcome.answer is not None:
                found.append((question, outcome.answer))
    return found


def _asks(layout: Layout, run_id: str) -> Iterator[AskView]:
    for ask_id in sorted(filter(is_id, list_names(layout.run(run_id).asks))):
        try:
            yield read_ask(layout, run_id, ask_id)
        except (PisubError, OSError):
            continue
