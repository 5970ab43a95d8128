"""Everything that the core can ask of its shell, besides sending.

A send is a plain tuple, because there is one for every message: ``(route, stamp, frame)``, the three parts of one
multipart message, to be sent without waiting.
"""

from __future__ import annotations

import msgspec

from pisub.process import ProcessIdentity

Send = tuple[bytes, bytes, bytes]


class WatchProcess(msgspec.Struct, frozen=True):
    """Say ``ProcessDied`` when this process goes (at once if it is gone). Idempotent."""

    process: ProcessIdentity


class UnwatchProcess(msgspec.Struct, frozen=True):
    """Nobody needs to know any more."""

    process: ProcessIdentity


class Disconnect(msgspec.Struct, frozen=True):
    """Break this connection: its other end notices, and may come again."""

    route: bytes


class Forget(msgspec.Struct, frozen=True):
    """This connection is over: drop what is known of it."""

    route: bytes


class Suspended(msgspec.Struct, frozen=True):
    """Messages wait for this connection. Ask ``Core.next_queued`` for them when it may have room."""

    route: bytes


class Leave(msgspec.Struct, frozen=True):
    """Stop serving: everybody has been told."""

    reason: str


Effect = WatchProcess | UnwatchProcess | Disconnect | Forget | Suspended | Leave


class Outcome(msgspec.Struct, frozen=True):
    """What one call of the core wants done: first the sends, in order, then the effects."""

    sends: list[Send]
    effects: list[Effect]
