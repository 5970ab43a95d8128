"""What the core was told lately, kept so that a crash can be played again.

Owns a ring of everything that was put into the core, and, for connections older than the ring, the Hello and the
requests that made them what they are. Bodies of messages between peers are not kept when it is written down: the core
never reads them. No sockets, no files.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from pisub.errors import ProtocolError
from pisub.protocol import codec
from pisub.protocol.delivery import Kind

from .events import Accepted, ConnectionLost, Event, SendFailed

#: Batches, events and ticks that the ring holds: some seconds of a busy broker, minutes of a quiet one.
RING: Final = 128
#: A batch with more bytes than this is kept without its bodies at once, so that the ring holds 8 MiB at most.
MAX_BATCH_BYTES: Final = 64 * 1024
#: Requests that are remembered of one connection: more than this of roles, topics and watches is a rare client.
MAX_SETUP: Final = 64
#: Frames whose bodies the broker itself reads.
_READ_BY_US: Final = frozenset((Kind.HELLO, Kind.CONTROL))


class KeptFrame(msgspec.Struct, frozen=True):
    """One frame: all of it where the broker reads its body, else its beginning and how long the rest was."""

    route: bytes
    start: bytes
    left_out: int = 0

    @property
    def frame(self) -> bytes:
        """A frame that the core treats like the one that came."""
        return self.start + bytes(self.left_out)


class KeptSend(msgspec.Struct, frozen=True):
    """A send that failed."""

    kept: KeptFrame
    stamp: bytes
    is_gone: bool

    @property
    def failed(self) -> SendFailed:
        """The event that it was."""
        return SendFailed(self.kept.route, self.stamp, self.kept.frame, self.is_gone)


class Frames(msgspec.Struct, frozen=True, tag="frames"):
    """A batch of frames came."""

    at: float
    frames: tuple[KeptFrame, ...]


class Happened(msgspec.Struct, frozen=True, tag="event"):
    """Something else came."""

    at: float
    event: Event


class Ticked(msgspec.Struct, frozen=True, tag="tick"):
    """Time passed. Of several without anything between them the last is kept."""

    at: float


class SendsFailed(msgspec.Struct, frozen=True, tag="sends-failed"):
    """Receivers did not take these."""

    at: float
    failed: tuple[KeptSend, ...]


class Retried(msgspec.Struct, frozen=True, tag="retried"):
    """What waited for a suspended peer was asked for, and so many of it were sent."""

    route: bytes
    limit: int
    sent: int


Entry = Frames | Happened | Ticked | SendsFailed | Retried
_Items = Sequence[tuple[bytes, bytes]]
_Raw = tuple[float, _Items] | tuple[float, Sequence[SendFailed], None] | Entry


class History:
    """The ring, and what stood before it."""

    def __init__(self) -> None:
        self._ring: deque[_Raw] = deque(maxlen=RING)
        self._count = 0
        self._setup: dict[bytes, list[tuple[int, Entry]]] = {}
        self._lost: deque[tuple[int, bytes]] = deque()

    # What comes --------------------------------------------------------------------------------------------------

    def received(self, items: _Items, now: float) -> None:
        """Frames are about to be handled."""
        self._count += 1
        size = 0
        for _, frame in items:
            size += len(frame)
        self._ring.append((now, items) if size <= MAX_BATCH_BYTES else Frames(now, _kept(items)))

    def asked(self, route: bytes, frame: bytes, now: float) -> None:
        """One of the frames just received is a Hello or a request, which the connection's state rests on."""
        setup = self._setup.setdefault(route, [])
        if len(setup) < MAX_SETUP:
            setup.append((self._count, Frames(now, (KeptFrame(route, frame),))))

    def happened(self, event: Event, now: float) -> None:
        """An event is about to be handled."""
        self._add(Happened(now, event))
        if isinstance(event, Accepted):
            self._setup[event.route] = [(self._count, Happened(now, event))]
        elif isinstance(event, ConnectionLost):
            self._lost.append((self._count, event.route))
            while self._lost and self._lost[0][0] <= self._count - len(self._ring):
                self._setup.pop(self._lost.popleft()[1], None)

    def ticked(self, now: float) -> None:
        """A tick is about to be handled."""
        if self._ring and isinstance(self._ring[-1], Ticked):
            self._ring[-1] = Ticked(now)
        else:
            self._add(Ticked(now))

    def sends_failed(self, failed: Sequence[SendFailed], now: float) -> None:
        """Sends failed."""
        self._add((now, failed, None))

    def retried(self, route: bytes, limit: int) -> None:
        """A suspended peer's messages are asked for."""
        self._add(Retried(route, limit, 0))

    def handed_over(self, route: bytes, count: int) -> None:
        """So many of them were sent."""
        last = self._ring[-1] if self._ring else None
        if isinstance(last, Retried) and last.route == route and not last.sent:
            self._ring[-1] = Retried(route, last.limit, count)
        else:
            self._add(Retried(route, 0, count))

    def _add(self, entry: _Raw) -> None:
        self._count += 1
        self._ring.append(entry)

    # What is written down ----------------------------------------------------------------------------------------

    def entries(self) -> tuple[Entry, ...]:
        """Return what led here, without bodies of messages between peers."""
        before_ring = self._count - len(self._ring)
        gone = {route for index, route in self._lost if index <= before_ring}
        setup = sorted(
            (
                each
                for route, entries in self._setup.items()
                if route not in gone
                for each in entries
                if each[0] <= before_ring
            ),
            key=lambda each: each[0],
        )
        return tuple(itertools.chain((entry for _, entry in setup), map(_entry, self._ring)))


def _entry(raw: _Raw) -> Entry:
    match raw:
        case (at, items):
            return Frames(at, _kept(items))
        case (at, failed, None):
            kept = (KeptSend(KeptFrame(each.route, *_split(each.frame)), each.stamp, each.is_gone) for each in failed)
            return SendsFailed(at, tuple(kept))
        case _:
            return raw


def _kept(items: Iterable[tuple[bytes, bytes]]) -> tuple[KeptFrame, ...]:
    return tuple(KeptFrame(route, *_split(frame)) for route, frame in items)


def _split(frame: bytes) -> tuple[bytes, int]:
    """Return what is kept of a frame, and how long the rest is. One that does not decode is refused by any content."""
    try:
        header, body = codec.unpack(frame)
    except ProtocolError:
        return b"", len(frame)
    if header.kind in _READ_BY_US:
        return frame, 0
    return frame[: len(frame) - len(body)], len(body)
