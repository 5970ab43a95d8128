"""What waits in the broker for one peer that does not keep up, bounded in bytes.

Owns the order and the bound of one queue. It must not know sockets, peers or the total over all peers.
"""

from __future__ import annotations

import itertools
from collections import deque

import msgspec

from pisub.protocol import codec
from pisub.protocol.delivery import Kind, Priority
from pisub.protocol.limits import KIB, MAX_PEER_QUEUE_BYTES

#: What an entry costs beside its bytes: two bytes objects, a tuple, a slot in a deque.
ENTRY_OVERHEAD_BYTES = 160
#: Droppable messages are queued until this much waits: what a reader that was only preempted has caught up with in a
#: few milliseconds. Past it they are dropped.
DROPPABLE_ROOM_BYTES = 256 * KIB

_ESSENTIAL_KINDS = frozenset({Kind.WELCOME, Kind.LEAVING, Kind.REPLY, Kind.FAIL, Kind.ROUTED})

_AWAITED_KINDS = frozenset({Kind.CALL, Kind.REPLY, Kind.FAIL})


class Entry(msgspec.Struct, frozen=True):
    """One message that waits.

    Attributes:
        is_essential: Whether it outlives the connection: replies, control and terminal messages.
    """

    stamp: bytes
    frame: bytes
    is_essential: bool
    cost: int


def is_essential(kind: int, priority: int) -> bool:
    """Tell whether a message is kept when a slow peer's connection is dropped."""
    return priority <= Priority.TERMINAL or kind in _ESSENTIAL_KINDS


def effective_priority(kind: int, priority: int) -> int:
    """Return the class that a message is treated as: a call and its answer are not droppable, somebody waits."""
    return min(priority, Priority.NORMAL) if kind in _AWAITED_KINDS else priority


class Mailbox:
    """A queue in which control messages go first, and droppable ones are let in only while it is short.

    Attributes:
        queued_bytes: What the entries hold, overhead included.
        gap: Droppable messages that were turned away since a message was last handed over.
        dropped: The same, since the peer's Hello.
    """

    __slots__ = ("_control", "_others", "dropped", "gap", "limit_bytes", "queued_bytes")

    def __init__(self, limit_bytes: int = MAX_PEER_QUEUE_BYTES) -> None:
        self._control: deque[Entry] = deque()
        self._others: deque[Entry] = deque()
        self.limit_bytes = limit_bytes
        self.queued_bytes = 0
        self.gap = 0
        self.dropped = 0

    def __len__(self) -> int:
        """Return how many messages wait."""
        return len(self._control) + len(self._others)

    @property
    def is_over_limit(self) -> bool:
        """Whether the bound is passed: the peer's connection has to go."""
        return self.queued_bytes > self.limit_bytes

    @property
    def has_room_for_droppable(self) -> bool:
        """Whether a droppable message is queued rather than dropped."""
        return self.queued_bytes < DROPPABLE_ROOM_BYTES

    def drop(self, count: int = 1) -> None:
        """Account for droppable messages that are not queued; the next message handed over tells of them."""
        self.gap += count
        self.dropped += count

    def put(self, stamp: bytes, frame: bytes, *, kind: int, priority: int) -> None:
        """Queue a message. Control goes before the rest, each in its own order."""
        cost = len(stamp) + len(frame) + ENTRY_OVERHEAD_BYTES
        entry = Entry(stamp, frame, is_essential(kind, priority), cost)
        (self._control if priority == Priority.CONTROL else self._others).append(entry)
        self.queued_bytes += cost

    def peek(self, limit: int) -> list[tuple[bytes, bytes]]:
        """Return stamp and frame of the next messages, at most ``limit``, the gap counted into the first stamp."""
        entries = itertools.islice(itertools.chain(self._control, self._others), limit)
        found = [(entry.stamp, entry.frame) for entry in entries]
        if self.gap and found:
            found[0] = (self.stamped(found[0][0]), found[0][1])
        return found

    def stamped(self, stamp: bytes) -> bytes:
        """Return a stamp that also tells of the gap. The gap stays until ``tell_gap`` or ``pop``."""
        if not self.gap:
            return stamp
        told = codec.unpack_stamp(stamp)
        return codec.pack_stamp(msgspec.structs.replace(told, dropped=told.dropped + self.gap))

    def tell_gap(self, stamp: bytes) -> bytes:
        """Return a stamp that tells of the gap, and forget the gap."""
        told = self.stamped(stamp)
        self.gap = 0
        return told

    def pop(self, count: int) -> None:
        """Remove the first messages that ``peek`` showed: they were handed over, and the gap with them."""
        for _ in range(count):
            queue = self._control or self._others
            self.queued_bytes -= queue.popleft().cost
        if count:
            self.gap = 0

    def keep_essential(self) -> int:
        """Throw away what need not outlive the connection, then the newest of the rest until the bound holds.

        Returns:
            How many messages were thrown away.
        """
        before = len(self)
        kept: deque[Entry] = deque()
        self.queued_bytes = sum(entry.cost for entry in self._control)
        for entry in self._others:
            if entry.is_essential and self.queued_bytes + entry.cost <= self.limit_bytes:
                kept.append(entry)
                self.queued_bytes += entry.cost
        self._others = kept
        while self.is_over_limit and self._control:
            self.queued_bytes -= self._control.pop().cost
        return before - len(self)

    def clear(self) -> None:
        """Throw everything away."""
        self._control.clear()
        self._others.clear()
        self.queued_bytes = 0
