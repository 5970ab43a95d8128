"""Showing what passes through, to those who may see it: envelopes, never bodies.

Owns what is told of a message. It costs nothing while nobody asks: the core looks once a batch whether anybody does.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

from pisub.errors import ProtocolError
from pisub.protocol import codec
from pisub.protocol.delivery import Header, Kind, Priority
from pisub.protocol.session import TRACE_TOPIC, Envelope, Traced

from .peers import Peer
from .state import State

#: Envelopes in one message: 24 of the longest are some 55 KB, and must fit into a body.
_CHUNK: Final = 24


class Tracing:
    """Tells the tracers of a core's turn."""

    def __init__(self, state: State) -> None:
        self._state = state

    def senders(self, items: Sequence[tuple[bytes, bytes]]) -> list[Peer | None]:
        """Return who sent each frame, before it is handled: a goodbye takes its sender away."""
        return [self._state.by_route.get(route) for route, _ in items]

    def publish(self, items: Sequence[tuple[bytes, bytes]], senders: Sequence[Peer | None]) -> None:
        """Tell the tracers what was received in this turn, and what the broker says of its own."""
        state = self._state
        seen = [
            _envelope(frame, sender or state.by_route.get(route))
            for (route, frame), sender in zip(items, senders, strict=True)
        ]
        seen += [
            _envelope(frame, None, receiver=state.by_route.get(route))
            for route, stamp, frame in state.sends
            if stamp == state.own_stamp
        ]
        for start in range(0, len(seen), _CHUNK):
            body = codec.encode(Traced(envelopes=tuple(itertools.islice(seen, start, start + _CHUNK))))
            header = Header(kind=Kind.PUBLISH, priority=Priority.DROPPABLE, topic=TRACE_TOPIC)
            frame = codec.pack(header, body)
            for tracer in state.topics.tracers:
                state.deliver(tracer, state.own_stamp, frame, Kind.PUBLISH, Priority.DROPPABLE)


def _envelope(frame: bytes, sender: Peer | None, *, receiver: Peer | None = None) -> Envelope:
    address, incarnation = ("", 0) if sender is None else (sender.address, sender.incarnation)
    try:
        header, body = codec.unpack(frame)
    except ProtocolError:
        return Envelope(sender=address, incarnation=incarnation, body_bytes=len(frame))
    return Envelope(
        sender=address,
        incarnation=incarnation,
        kind=header.kind,
        priority=header.priority,
        message_id=header.message_id,
        correlation_id=header.correlation_id,
        scope=header.scope,
        topic=header.topic,
        to=header.to if receiver is None else receiver.address,
        generation=0 if header.fence is None else header.fence.generation,
        ttl_ms=header.ttl_ms,
        flags=header.flags,
        trace=header.trace,
        body_bytes=len(body),
    )
