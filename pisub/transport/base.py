"""What a bus needs of its connection to the broker. ``dealer`` is the one over ZeroMQ."""

from __future__ import annotations

from typing import Protocol

from pisub.transport.monitor import Link as Link  # noqa: PLC0414  # what ``on_link`` is told


class Transport(Protocol):
    """One connection, made with ``on_message``, ``on_room`` and ``on_link``; see ``dealer.Dealer``."""

    #: Whether nothing was sent since the last turn began.
    is_quiet: bool

    def dial(self, endpoint: str) -> None:
        """Connect to an endpoint, leaving the one before."""
        ...

    def hang_up(self) -> None:
        """Drop the connection."""
        ...

    def send(self, frame: bytes) -> bool:
        """Hand over one frame; False when there is no connection or no room."""
        ...

    def look(self) -> None:
        """Take a turn soon."""
        ...

    def realign(self) -> None:
        """Skip the rest of a message that is none of ours."""
        ...

    def close(self, *, linger_ms: int = 0) -> None:
        """Close. Idempotent."""
        ...
