"""When to try again to send to peers whose pipe was full.

Owns the order and the times. No sockets, no clock, and nothing of what waits for the peers.

Nothing says which pipe of a ROUTER has room again, but the socket's descriptor wakes whoever waits for it when one has.
So a peer that took something lately is *lively*: it is tried at every turn of the loop, a few of them each time. One
that has not is tried ever more seldom, by the clock, and when the loop woke without a message: it may be the one.
"""

from __future__ import annotations

import heapq
import itertools
import math
from typing import Final

import msgspec

#: A peer is lively for this long after it last took something: some dozens of times what a pipe takes to drain.
LIVELY_S: Final = 0.005
#: Lively peers that are tried in one turn: each that still has no room costs the loop an exception.
LIVELY_A_TURN: Final = 8
#: Should nothing wake the loop, lively peers are tried after this long.
LIVELY_PAUSE_S: Final = 0.001
#: The others: first pause, and the longest, which each failure doubles.
MIN_PAUSE_S: Final = 0.00125
MAX_PAUSE_S: Final = 0.01


class _Pause(msgspec.Struct):
    length_s: float
    due: float


class Retries:
    """The suspended peers of one broker, by their connection."""

    def __init__(self) -> None:
        self._lively: dict[bytes, float] = {}
        self._lively_due = math.inf
        self._pausing: dict[bytes, _Pause] = {}
        self._by_due: list[tuple[float, bytes]] = []

    def __len__(self) -> int:
        return len(self._lively) + len(self._pausing)

    def add(self, route: bytes, now: float) -> None:
        """A peer's pipe was found full. No effect for one that is here already."""
        if route not in self._pausing and route not in self._lively:
            self._lively[route] = now
            self._lively_due = min(self._lively_due, now + LIVELY_PAUSE_S)

    def forget(self, route: bytes) -> None:
        """Nothing waits for the peer any more, or its connection is gone. Idempotent."""
        self._lively.pop(route, None)
        self._pausing.pop(route, None)

    def due(self, now: float, *, is_woken: bool = False) -> list[bytes]:
        """Return whom to try now; say ``took``, ``refused`` or ``forget`` of each.

        Args:
            now: Monotonic time.
            is_woken: Whether the loop woke, and there was no message.
        """
        found = list(itertools.islice(self._lively, LIVELY_A_TURN))
        self._lively_due = now + LIVELY_PAUSE_S if len(found) == len(self._lively) else now
        heap = self._by_due
        while heap and heap[0][0] <= now:
            at, route = heapq.heappop(heap)
            pause = self._pausing.get(route)
            if pause is not None and pause.due == at:
                found.append(route)
        if is_woken:
            others = (route for route in self._pausing if route not in found)
            found += itertools.islice(others, max(0, LIVELY_A_TURN - len(found)))
        return found

    def took(self, route: bytes, now: float, *, has_room: bool) -> None:
        """The peer took something: all that was tried (``has_room``), or not all of it."""
        self._pausing.pop(route, None)
        self._lively.pop(route, None)
        self._lively[route] = now
        if has_room:
            self._lively_due = now

    def refused(self, route: bytes, now: float) -> None:
        """The peer took nothing."""
        since = self._lively.pop(route, None)
        if since is not None and now < since + LIVELY_S:
            self._lively[route] = since  # behind the others
            return
        pause = self._pausing.pop(route, None)
        if pause is not None and now < pause.due:
            self._pausing[route] = pause  # tried early, and behind the others now
            return
        length_s = MIN_PAUSE_S if pause is None else min(2 * pause.length_s, MAX_PAUSE_S)
        self._pausing[route] = _Pause(length_s, now + length_s)
        heapq.heappush(self._by_due, (now + length_s, route))

    @property
    def next_due(self) -> float:
        """When somebody is to be tried again at the latest."""
        at = self._lively_due if self._lively else math.inf
        return min(at, self._by_due[0][0]) if self._by_due else at
