"""The calls that a client has open, by integer id, with their deadlines. Pure: time is an argument.

The caller owns a call's deadline. Ids ascend, so the table's order is the order of the calls.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from pisub.errors import RefusedError
from pisub.protocol.delivery import Header
from pisub.protocol.limits import MAX_OPEN_CALLS
from pisub.protocol.session import Claim

#: Ended calls leave their deadline in the heap; it is rebuilt when they are this many more than the open ones.
_MAX_STALE_DEADLINES = 1_024
#: Addresses whose incarnation is remembered, so that a resend cannot reach another life of them.
_MAX_KNOWN_LIVES = 4_096


class PendingCall(msgspec.Struct, gc=False):
    """One open call.

    Attributes:
        header: As it was first sent; its ``message_id`` is the call's id.
        body: The encoded body.
        waiter: What the shell resolves, and the core only carries; None for a request of the core's own.
        deadline: Monotonic time, or None.
        bound_to: ``address@incarnation`` once the broker said who has it.
        is_sent: Whether the frame was handed to libzmq at least once.
        is_resent: Whether it was sent again after a reconnect: then "not delivered" only speaks of the last time.
        is_repeatable: Whether a resend does no harm when it is not known whether the first one arrived.
        is_open: Until it ended, in whatever way.
        claim: The claim that is asked for; its answer counts the moment it comes, before anybody wakes for it.
    """

    header: Header
    body: bytes
    waiter: Any
    deadline: float | None = None
    bound_to: str = ""
    is_sent: bool = False
    is_resent: bool = False
    is_repeatable: bool = False
    is_open: bool = True
    claim: Claim | None = None


class PendingCalls:
    """The table of open calls."""

    def __init__(self, *, max_open: int = MAX_OPEN_CALLS) -> None:
        self._open: dict[int, PendingCall] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._lives: dict[str, int] = {}
        self._max_open = max_open

    def __len__(self) -> int:
        return len(self._open)

    def open(self, call: PendingCall) -> None:
        """Add a call.

        Raises:
            RefusedError: ``max_open`` calls are open already.
        """
        if len(self._open) >= self._max_open:
            raise RefusedError(f"{self._max_open} calls are open: wait for some of them first.", code="too_many_calls")
        message_id = call.header.message_id
        self._open[message_id] = call
        if call.deadline is not None:
            heapq.heappush(self._deadlines, (call.deadline, message_id))
            if len(self._deadlines) > 2 * len(self._open) + _MAX_STALE_DEADLINES:
                self._rebuild_deadlines()

    def get(self, message_id: int) -> PendingCall | None:
        """Return an open call."""
        return self._open.get(message_id)

    def close(self, message_id: int) -> PendingCall | None:
        """Remove a call because it ended; None when it is not open: a second answer, or one that came too late."""
        call = self._open.pop(message_id, None)
        if call is not None:
            call.is_open = False
        return call

    def renumber(self, kind: int, next_id: Callable[[], int]) -> None:
        """Give the open calls of one kind other ids, in their places: an answer to the ids before is not theirs."""
        calls = list(self._open.values())
        self._open.clear()
        for call in calls:
            if call.header.kind == kind:
                call.header = msgspec.structs.replace(call.header, message_id=next_id())
                if call.deadline is not None:
                    heapq.heappush(self._deadlines, (call.deadline, call.header.message_id))
            self._open[call.header.message_id] = call

    def close_all(self) -> list[PendingCall]:
        """Remove every call, in their order."""
        calls = list(self._open.values())
        self._open.clear()
        self._deadlines.clear()
        for call in calls:
            call.is_open = False
        return calls

    def bind(self, message_id: int, bound_to: str) -> None:
        """Note who has the call (the broker's ``ROUTED``). The first word counts."""
        call = self._open.get(message_id)
        if call is not None and not call.bound_to:
            call.bound_to = bound_to

    def note_life(self, address: str, incarnation: int) -> None:
        """Remember that ``address`` answered in this incarnation."""
        lives = self._lives
        if lives.get(address) != incarnation:
            if len(lives) >= _MAX_KNOWN_LIVES:
                lives.clear()
            lives[address] = incarnation

    def target_of(self, call: PendingCall) -> str:
        """Return the one life that a resend of the call may reach, or '' where none is known.

        For a call to an address without a binding it is the incarnation that answered last: if that is not the one
        that got the call, the broker fails the resend, and nothing is done twice.
        """
        if call.bound_to:
            return call.bound_to
        address = call.header.to
        incarnation = self._lives.get(address)
        return f"{address}@{incarnation}" if incarnation is not None else ""

    def in_order(self) -> Iterable[PendingCall]:
        """Return the open calls, first opened first."""
        return list(self._open.values())

    def next_deadline(self) -> float | None:
        """Return the earliest deadline, or None.

        It may be that of a call that has ended: to find that out for each call would cost more than to wake for it.
        """
        return self._deadlines[0][0] if self._deadlines else None

    def expire(self, now: float) -> list[PendingCall]:
        """Remove and return the calls whose deadline has passed, earliest first."""
        expired: list[PendingCall] = []
        heap = self._deadlines
        while heap and heap[0][0] <= now:
            call = self.close(heapq.heappop(heap)[1])
            if call is not None:
                expired.append(call)
        return expired

    def _rebuild_deadlines(self) -> None:
        self._deadlines = [(call.deadline, key) for key, call in self._open.items() if call.deadline is not None]
        heapq.heapify(self._deadlines)
