"""Everything that can happen to the broker's core, besides frames and time.

Frames come in batches to ``Core.handle_batch``; time is an argument of every call. Plain values only: no socket, no
descriptor. A *route* is the routing id that the socket gave a connection; it names nothing outside this process.
"""

from __future__ import annotations

import msgspec

from pisub.process import ProcessIdentity


class Accepted(msgspec.Struct, frozen=True, tag=True):
    """A connection's first frame arrived; this is what the kernel says about its other end.

    Attributes:
        route: The connection.
        is_same_user: Whether the peer's uid is the broker's own.
        pid: The peer's process, 0 where the kernel does not say (another pid namespace).
        process: Its identity, read after a pidfd was opened; None where it is already gone or unknown.
        ancestors: Pids of its parents, nearest first.
        is_full: Whether descriptors are so scarce that this connection can only be told so.
    """

    route: bytes
    is_same_user: bool
    pid: int = 0
    process: ProcessIdentity | None = None
    ancestors: tuple[int, ...] = ()
    is_full: bool = False


class ConnectionLost(msgspec.Struct, frozen=True, tag=True):
    """A connection broke. Its process may live and come back."""

    route: bytes


class ProcessDied(msgspec.Struct, frozen=True, tag=True):
    """A process that the core wanted watched is gone, or is a zombie."""

    process: ProcessIdentity


class MessageRefused(msgspec.Struct, frozen=True, tag=True):
    """A message was thrown away before it became a frame: it had more than one part."""

    route: bytes
    code: str


class LeaveRequested(msgspec.Struct, frozen=True, tag=True):
    """The broker must go: a signal, or its directory was taken away."""

    reason: str


class SendFailed(msgspec.Struct, frozen=True, tag=True):
    """A send found its receiver's pipe full, or (``is_gone``) its connection broken. Nothing of it was sent."""

    route: bytes
    stamp: bytes
    frame: bytes
    is_gone: bool = False


Event = Accepted | ConnectionLost | ProcessDied | MessageRefused | LeaveRequested | SendFailed
