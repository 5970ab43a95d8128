"""Questions of a run that ended without an answer: with one, the run can be resumed."""

from __future__ import annotations

import msgspec

from pisub.errors import PisubError
from pisub.ids import is_id
from pisub.protocol.checkpoint import Question
from pisub.record.dirs import list_names
from pisub.record.layout import Layout
from pisub.record.questions import read_ask


class Unanswered(msgspec.Struct, frozen=True):
    """One of them. ``reference`` names it on the command line, as ``pisub questions`` does."""

    ask_id: str
    number: int
    question: Question

    @property
    def reference(self) -> str:
        """The ask's id and the question's number in it."""
        return f"{self.ask_id}.{self.number}"


def list_unanswered(layout: Layout, run_id: str) -> list[Unanswered]:
    """Read a run's questions without an answer, oldest first. One that was asked again, and answered, is not one.

    Asks that cannot be read are left out.
    """
    answered: set[tuple[str, tuple[str, ...]]] = set()
    found: dict[tuple[str, tuple[str, ...]], Unanswered] = {}
    for ask_id in sorted(filter(is_id, list_names(layout.run(run_id).asks))):
        try:
            view = read_ask(layout, run_id, ask_id)
        except (PisubError, OSError):
            continue
        for number, question in enumerate(view.record.questions, start=1):
            key = (question.text, tuple(question.options))
            outcome = view.outcomes.get(number)
            if outcome is not None and outcome.answer is not None:
                answered.add(key)
            found.setdefault(key, Unanswered(ask_id, number, question))
    return [each for key, each in found.items() if key not in answered]
