"""Frames that wait for a connection, or for room in it. Pure: bytes and numbers.

What libzmq accepted is out of our hands; what it has not accepted is here, in order, bounded in bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from pisub.client.bus_calls import PendingCall
from pisub.errors import NotDeliveredError
from pisub.protocol.bundle import join
from pisub.protocol.delivery import Header, Priority
from pisub.protocol.limits import MAX_BUNDLE_BYTES, MAX_BUNDLE_PARTS, MAX_PEER_QUEUE_BYTES


class Outgoing(msgspec.Struct, gc=False):
    """One frame to send, and what it was made of: a new connection may need it made again."""

    frame: bytes
    header: Header
    body: bytes
    call: PendingCall | None = None


class Outbox:
    """First in, first out. Droppable frames make room for others."""

    def __init__(self, *, max_bytes: int = MAX_PEER_QUEUE_BYTES, max_bundle_parts: int = MAX_BUNDLE_PARTS) -> None:
        self._items: deque[Outgoing] = deque()
        self._max_bytes = max_bytes
        self._max_bundle_parts = max_bundle_parts
        self._bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of all frames that wait."""
        return self._bytes

    def push(self, item: Outgoing) -> bool:
        """Append a frame. False when it was droppable and there was no room: then it is dropped and counted.

        Raises:
            NotDeliveredError: No room for a frame that may not be dropped. Nothing was queued.
        """
        size = len(item.frame)
        if self._bytes + size > self._max_bytes:
            if item.header.priority == Priority.DROPPABLE:
                self.dropped += 1
                return False
            self._shed()
            if self._bytes + size > self._max_bytes:
                raise NotDeliveredError(
                    f"{self._bytes} bytes already wait for the broker: it does not read, or cannot be reached."
                )
        self._items.append(item)
        self._bytes += size
        return True

    def put_first(self, items: Iterable[Outgoing]) -> None:
        """Put frames before all others, in their order. They were accepted once: the bound does not hold for them."""
        for item in reversed(list(items)):
            self._items.appendleft(item)
            self._bytes += len(item.frame)

    def take_all(self) -> list[Outgoing]:
        """Remove and return everything."""
        items = list(self._items)
        self._items.clear()
        self._bytes = 0
        return items

    def drain(self, send: Callable[[bytes], bool], *, is_bundling: bool = False) -> bool:
        """Hand frames to ``send`` until it refuses one, which stays. Tell whether the outbox is empty.

        Calls that ended while they waited are dropped; the others are marked as sent.

        Args:
            send: Takes a message: a frame, or a bundle of them.
            is_bundling: Whether the broker reads bundles.
        """
        limit = self._max_bundle_parts if is_bundling else 1
        while self._items:
            some = self._take(limit)
            if not some:
                continue
            if not send(some[0].frame if len(some) == 1 else join([item.frame for item in some])):
                self.put_first(some)
                return False
            for item in some:
                if item.call is not None:
                    item.call.is_sent = True
        return True

    def _take(self, limit: int) -> list[Outgoing]:
        """Take frames off the front that fit into one message; calls that ended are dropped on the way."""
        items = self._items
        some: list[Outgoing] = []
        size = 0
        while items and len(some) < limit:
            item = items[0]
            if item.call is None or item.call.is_open:
                size += len(item.frame)
                if some and size > MAX_BUNDLE_BYTES:
                    break
                some.append(item)
            items.popleft()
            self._bytes -= len(item.frame)
        return some

    def _shed(self) -> None:
        kept = [item for item in self._items if item.header.priority != Priority.DROPPABLE]
        self.dropped += len(self._items) - len(kept)
        self._items = deque(kept)
        self._bytes = sum(len(item.frame) for item in kept)
