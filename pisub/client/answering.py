"""Open questions for a program that is connected and not the session's host: another program, a web page.

What an outcome is, is ``open_questions``'s to say. Messages only have it noticed at once.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
from collections.abc import Callable

from pisub import arguments
from pisub.client.bus import Bus
from pisub.client.open_questions import OpenQuestion, give_outcome, open_question
from pisub.errors import PisubError
from pisub.protocol.checkpoint import HOST_ROLE, AnswerPosted
from pisub.protocol.runs import runner_address
from pisub.record.layout import Layout
from pisub.record.model import QuestionOutcome
from pisub.record.questions import list_open_asks


class Questions:
    """The open questions of a record, for a program that is connected. ``client.questions``."""

    def __init__(self, layout: Layout, bus: Bus, session_id: str) -> None:
        self._layout = layout
        self._bus = bus
        self._session_id = session_id

    async def list(
        self, *, all_sessions: bool = False, on_problem: Callable[[str, PisubError], None] | None = None
    ) -> builtins.list[OpenQuestion]:
        """Return the questions that can be answered, oldest first.

        Args:
            all_sessions: Those of every session, not of this one alone.
            on_problem: Told the id and the error of each ask that cannot be read. It hides no other.
        """
        session_id = None if arguments.truth(all_sessions, "all_sessions") else self._session_id
        report = on_problem or _ignore
        asks = await asyncio.to_thread(list_open_asks, self._layout, session_id=session_id, on_problem=report)
        asks.sort(key=lambda ask: ask.record.asked_at)
        return [open_question(ask.record, number) for ask in asks for number in ask.open_numbers]

    async def answer(self, question: OpenQuestion | str, value: str, *, by: str = "") -> QuestionOutcome:
        """Answer a question, whoever asks it and whoever is the host. The first answer wins.

        Args:
            question: One of ``list``, or its id.
            value: Of a question with options one of them, or its number; else a text.
            by: Who answers, for the child and the record; '' is this client's address.

        Raises:
            PisubError: As ``give_outcome`` says; nothing was changed then.
        """
        arguments.text(value, "value")
        return await self._settle(question, value=value, reason="", by=arguments.text(by, "by"))

    async def decline(self, question: OpenQuestion | str, reason: str = "") -> QuestionOutcome:
        """Say that a question will not be answered. Arguments and errors as for ``answer``."""
        return await self._settle(question, value=None, reason=arguments.text(reason, "reason"), by="")

    async def _settle(
        self, question: OpenQuestion | str, *, value: str | None, reason: str, by: str
    ) -> QuestionOutcome:
        reference = question.id if isinstance(question, OpenQuestion) else arguments.text(question, "question")
        record, outcome = await asyncio.to_thread(
            give_outcome, self._layout, reference, value=value, reason=reason, by=by or self._bus.address
        )
        message = AnswerPosted(ask_id=record.ask_id, run_id=record.run_id, number=outcome.number)
        for address in (runner_address(record.run_id), f"role:{HOST_ROLE}"):
            with contextlib.suppress(PisubError):  # they read the file by themselves, only later
                self._bus.tell(address, message, scope=record.session_id)
        return outcome


def _ignore(_ask_id: str, _error: PisubError) -> None:
    """Pass over an ask that cannot be read."""
