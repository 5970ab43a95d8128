"""What a program sees of its session without changing anything: its fleet, its status, whether it is live.

The base of all that acts in a session's name. It needs the record, and no broker.
"""

from __future__ import annotations

import asyncio

from pisub.client.status import SessionStatus, StatusQuery, StatusReader, check_query
from pisub.config import Settings
from pisub.protocol.fleet import FleetStatus
from pisub.record.layout import Layout


class SessionLooks:
    """One session, as far as it is only looked at.

    Attributes:
        session_id: The session.
        settings: What it was made with.
        layout: The record on disk.
    """

    def __init__(self, *, session_id: str, settings: Settings, layout: Layout) -> None:
        self.session_id = session_id
        self.settings = settings
        self.layout = layout
        self._status = StatusReader(layout, session_id, settings)

    async def fleet(self) -> FleetStatus:
        """Return who is at work in this session, for display: at most 16, oldest first, named by keys that stay.

        It names no run and holds no task. A key names a child for as long as it is active.
        """
        return self._status.fleet(await asyncio.to_thread(self._status.read))

    async def status(
        self,
        run_id: str | None = None,
        *,
        view: str | None = None,
        lines: int | None = None,
        index: int | None = None,
    ) -> SessionStatus:
        """Return this session's status in words, with its fleet and its snapshot; or that of one run.

        Args:
            run_id: A run, by its id or a beginning of it.
            view: ``fleet``, or with ``run_id`` ``transcript``: the last lines of what it did.
            lines: Of a transcript, 1 to 500; None is 80.
            index: Only this step of the run, from 0.

        Raises:
            InvalidArgumentError: An argument is not allowed; ``field`` says which.
            UnknownRunError: There is no such run, or no such step of it.
            AmbiguousIdError: ``run_id`` begins several.
        """
        query = StatusQuery(run_id=run_id, index=index, view=view, lines=lines)
        check_query(query)
        return await asyncio.to_thread(lambda: self._status.answer(query, self._status.read()))
