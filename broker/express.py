"""The short way through the broker: plain calls and their replies, which are nearly all that comes.

Owns what is true of every message that takes it, and must do exactly what ``routing`` would: a message about which
anything is special is left to the long way. One loop over a batch, with local names, because a method called and a
table looked up for each message are what a Python broker spends its time on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pisub.protocol.codec import peek_header
from pisub.protocol.delivery import Kind, Priority
from pisub.protocol.limits import MAX_OPEN_CALLS

from .authority import ROLE_NEEDS
from .peers import Peer
from .routing import ROLE_PREFIX, Routing
from .state import State

#: Takes what the short way does not: route, frame, sender, time.
LongWay = Callable[[bytes, bytes, Peer | None, float], None]

_CALL: Final = Kind.CALL
_REPLY: Final = Kind.REPLY
_NORMAL: Final = Priority.NORMAL


class Express:
    """Forwards batches.

    Args:
        state: The tables.
        routing: Finds the holder of a role, and tells callers of it.
        long_way: See ``LongWay``.
    """

    def __init__(self, state: State, routing: Routing, long_way: LongWay) -> None:
        self._state = state
        self._routing = routing
        self._long_way = long_way

    def forward(self, items: Sequence[tuple[bytes, bytes]], now: float) -> None:
        """Handle frames in order; what is to be sent is in ``state.sends`` then."""
        state = self._state
        long_way, routing = self._long_way, self._routing
        by_route, peers, lives, append = state.by_route.get, state.peers.get, state.lives.get, state.sends.append
        received = state.received
        routed: dict[tuple[Peer, Peer], list[int]] = {}
        for route, frame in items:
            received += 1
            sender = by_route(route)
            header = peek_header(frame)
            if sender is None or header is None or not sender.may_call or header.fence is not None:
                state.received = received
                long_way(route, frame, sender, now)
                continue
            kind = header.kind
            if kind == _CALL and header.priority == _NORMAL:
                number, calls = header.message_id, sender.calls
                callee = peers(header.to)
                is_role = callee is None and header.to.startswith(ROLE_PREFIX)
                if is_role and not ROLE_NEEDS.get(header.to, 0) & ~sender.authority:
                    callee = routing.find(header)
                if (
                    callee is not None
                    and number > 0
                    and number not in calls
                    and len(calls) < MAX_OPEN_CALLS
                    and not state.is_leaving
                ):
                    if is_role:
                        routed.setdefault((sender, callee), []).append(number)
                    ttl_ms = header.ttl_ms
                    calls[number] = (callee, now + ttl_ms / 1000 if ttl_ms > 0 else 0.0)
                    callee.serving += 1
                    if callee.is_slow:
                        state.deliver(callee, sender.stamp, frame, _CALL, _NORMAL)
                    else:
                        append((callee.route, sender.stamp, frame))  # type: ignore[arg-type]  # not slow: has a route
                    continue
            elif kind == _REPLY and header.priority == _NORMAL and not header.topic:
                caller = lives(header.to) or peers(header.to)
                if caller is not None:
                    call = caller.calls.get(header.correlation_id)
                    if call is not None and call[0] is sender:
                        del caller.calls[header.correlation_id]
                        sender.serving -= 1
                        if caller.is_slow:
                            state.deliver(caller, sender.stamp, frame, _REPLY, _NORMAL)
                        else:
                            append((caller.route, sender.stamp, frame))  # type: ignore[arg-type]  # as above
                        continue
            state.received = received
            long_way(route, frame, sender, now)
        state.received = received
        routing.tell_all_routed(routed)
