"""A session's status as its host answers it: a plain query from memory while that is fresh, everything else by reading.

Owns how fresh memory must be: one second old at most, and nothing was heard of the session's runs since. However many
ask at once, the record is read once for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from pisub.client.status import Projection, SessionStatus, StatusQuery, StatusReader, check_query
from pisub.clock import Clock

#: What a child reports without a message, such as its tokens, is this much behind at most.
FRESH_S: Final = 1.0


class LiveStatus:
    """The status of one host's session.

    Args:
        reader: Reads the record.
        clock: Time.
        is_ready: Whether news of the runs would be heard: the host holds its role, and is connected.
    """

    def __init__(self, reader: StatusReader, *, clock: Clock, is_ready: Callable[[], bool]) -> None:
        self._reader = reader
        self._clock = clock
        self._is_ready = is_ready
        #: What a plain query is answered, made of one reading when the first one asks.
        self._short: SessionStatus | None = None
        self._seen: Projection | None = None
        self._seen_at = 0.0
        self._news = 0
        self._reading: asyncio.Task[Projection] | None = None

    def forget(self) -> None:
        """Believe nothing that was read before: something has happened, or may have."""
        self._news += 1
        self._seen = self._short = None
        self._reading = None

    async def status(self, query: StatusQuery | None = None) -> SessionStatus:
        """Answer a query.

        Raises:
            InvalidArgumentError: It cannot be answered; ``field`` says why.
            UnknownRunError: There is no such run, or no such step of it.
            AmbiguousIdError: The beginning of an id fits several.
        """
        wanted = query or StatusQuery()
        check_query(wanted)
        if wanted.is_plain and self._seen is not None and self._is_fresh():
            if self._short is None:
                self._short = self._reader.short(self._seen)
            return self._short
        seen = await self._read()
        return await asyncio.to_thread(self._reader.answer, wanted, seen)

    def _is_fresh(self) -> bool:
        return self._is_ready() and self._clock.monotonic() - self._seen_at < FRESH_S

    async def _read(self) -> Projection:
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read_once(self._news), name="pisub-status")
        # Who gives up takes nothing from the others.
        return await asyncio.shield(self._reading)

    async def _read_once(self, news: int) -> Projection:
        begun_at = self._clock.monotonic()
        try:
            seen = await asyncio.to_thread(self._reader.read)
        finally:
            if news == self._news:
                self._reading = None
        if news == self._news:
            self._seen, self._seen_at, self._short = seen, begun_at, None
        return seen
