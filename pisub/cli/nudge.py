"""Telling live processes that a file was written, so that they read it now. Losing a nudge loses nothing."""

from __future__ import annotations

from pisub.config import Settings
from pisub.errors import PisubError
from pisub.launch import find_broker
from pisub.protocol.base import Message


def tell(settings: Settings, addresses: tuple[str, ...], message: Message, *, session_id: str) -> bool:
    """Send a message to addresses and roles of a session if a broker is up; none is started.

    Returns whether it was sent; that somebody got it is not known.
    """
    if find_broker(settings) is None:
        return False
    from pisub.cli.broker_link import send  # noqa: PLC0415  # asyncio and zmq: only where a broker is up

    try:
        return send(settings, addresses, message, session_id=session_id)
    except (PisubError, OSError):
        return False
