"""External runs as a client of a session tells its host of them, and sees them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from pisub.client.bus import Bus
from pisub.fleet.external import ExternalRun
from pisub.protocol.base import Message
from pisub.protocol.checkpoint import HOST_ROLE
from pisub.protocol.seams import (
    ExternalRunAnswer,
    ExternalRunList,
    ExternalRunRegister,
    ExternalRunUnregister,
    ExternalRunUpdate,
)

_ANSWER_S: Final = 10.0


class RemoteExternalRuns:
    """The external runs of one session, kept by its host until that ends.

    Every method raises ``NotDeliveredError`` where the session has no host now.
    """

    def __init__(self, bus: Bus, session_id: str) -> None:
        self._bus = bus
        self._session_id = session_id

    async def register(self, run_id: str, **fields: Any) -> ExternalRun:
        """Have a piece of work shown.

        Args:
            run_id: Its id, unique in the session; at most 160 characters on one line.
            **fields: ``source``, ``label``, ``state`` (``queued``, ``running``, ``completed``, ``failed``,
                ``stopped``) and ``startedAt``; and ``updatedAt``, ``endedAt``, ``currentAction``, ``preview``,
                ``reportPath``, ``transcriptPath``.

        Raises:
            InvalidArgumentError: A field is wrong, missing or unknown, or the id is taken.
        """
        run = {**fields, "id": run_id, "sessionId": self._session_id}
        return (await self._ask(ExternalRunRegister(run=run)))[0]

    async def update(self, run_id: str, **patch: Any) -> ExternalRun:
        """Change what is shown of one: all of it, or nothing.

        Raises:
            InvalidArgumentError: There is none, or a field is wrong, unknown, or one that stays as it is.
        """
        return (await self._ask(ExternalRunUpdate(id=run_id, patch=patch)))[0]

    async def unregister(self, run_id: str) -> bool:
        """Show one no more. False where there is none."""
        return (await self._call(ExternalRunUnregister(id=run_id))).is_found

    async def snapshot(self, *, ignore_malformed: bool = False) -> tuple[ExternalRun, ...]:
        """Return those that are shown: what goes on first, then the latest; at most 20, and 32 KiB.

        Args:
            ignore_malformed: Whether a record that another put there, and that is none, is removed instead of an error.

        Raises:
            InvalidArgumentError: There is such a record.
        """
        return await self._ask(ExternalRunList(ignore_malformed=ignore_malformed))

    async def _ask(self, message: Message) -> tuple[ExternalRun, ...]:
        return msgspec.convert((await self._call(message)).runs, tuple[ExternalRun, ...])

    async def _call(self, message: Message) -> ExternalRunAnswer:
        return await self._bus.call(
            f"role:{HOST_ROLE}", message, ExternalRunAnswer, timeout_s=_ANSWER_S, scope=self._session_id
        )
