"""What a host itself asks its human: in the queue of its children's questions, without a message or a file.

No file, because nobody but this process could use the answer: what asks ends with the host that would show it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from pisub.errors import OutcomeUnknownError
from pisub.hosting import queue_events as ev
from pisub.hosting.desk import Desk
from pisub.protocol.checkpoint import AskResult, AskStatus
from pisub.record.model import QuestionOutcome

#: Who asks, in the dialogs of a host's own questions.
OWN_AGENT: Final = "this session"


class OwnAsks:
    """The asks that a host makes itself, and their outcomes, for as long as they are open.

    Args:
        session_id: The host's session.
        is_host: Whether it is the host now. One that waits for its turn shows no dialogs, its own neither.
    """

    def __init__(self, session_id: str, is_host: Callable[[], bool]) -> None:
        self._session_id = session_id
        self._is_host = is_host
        self._outcomes: dict[str, dict[int, QuestionOutcome]] = {}

    def __contains__(self, ask_id: str) -> bool:
        """Tell whether an ask is one of these."""
        return ask_id in self._outcomes

    def record(self, outcome: QuestionOutcome) -> QuestionOutcome:
        """Keep an outcome unless the question has one; return the one that it has. May be called in any thread."""
        return self._outcomes.get(outcome.ask_id, {}).setdefault(outcome.number, outcome)

    async def ask(self, desk: Desk, ask: ev.Ask, abort: asyncio.Event | None) -> AskResult:
        """Bring an ask to the desk and wait for what becomes of it. Cancelling the wait takes it back.

        Args:
            desk: Where it is shown.
            ask: The batch; its times are its own.
            abort: Set to take it back and get ``cancelled``.
        """
        count = len(ask.questions)
        if not self._is_host():
            reason = "This process is not the session's host: it shows no dialogs."
            return AskResult(status=AskStatus.NO_HOST, answers=(None,) * count, reason=reason, ask_id=ask.ask_id)
        self._outcomes[ask.ask_id] = {}
        shown = asyncio.ensure_future(desk.ask(ask))
        aborted = None if abort is None else asyncio.ensure_future(abort.wait())
        try:
            await asyncio.wait({shown, *([] if aborted is None else [aborted])}, return_when=asyncio.FIRST_COMPLETED)
            if not shown.done():
                desk.feed(ev.AskWithdrawn(ask_id=ask.ask_id, reason="The asker took it back."))
            return await shown
        except OutcomeUnknownError:
            found = (self._outcomes[ask.ask_id].get(number) for number in range(1, count + 1))
            answers = tuple(None if each is None else each.answer for each in found)
            reason = "The host ended before the question was answered."
            return AskResult(status=AskStatus.CANCELLED, answers=answers, reason=reason, ask_id=ask.ask_id)
        except asyncio.CancelledError:
            desk.feed(ev.AskWithdrawn(ask_id=ask.ask_id, reason="The asker took it back."))
            raise
        finally:
            shown.cancel()
            if aborted is not None:
                aborted.cancel()
            del self._outcomes[ask.ask_id]
