"""Whether a socket has a connection, told by libzmq's own socket monitor.

Owns the monitor's PAIR socket and its place on the event loop. Knows nothing of what travels on the connection.
"""

from __future__ import annotations

import asyncio
import enum
import struct
from collections.abc import Callable
from typing import Any, Final

import zmq

_EVENT: Final = struct.Struct("=HI")
_NOBLOCK: Final = int(zmq.NOBLOCK)
_EVENTS: Final = int(zmq.EVENTS)
_POLLIN: Final = int(zmq.POLLIN)


class Link(enum.Enum):
    """What happened to the connection."""

    UP = "up"  # ZMTP's handshake is done: frames pass
    DOWN = "down"


def parse_event(frame: bytes) -> Link | None:
    """Read the first frame of a monitor's message; None for an event that says nothing about the link."""
    if len(frame) != _EVENT.size:
        return None
    event: int = _EVENT.unpack(frame)[0]
    if event == zmq.Event.HANDSHAKE_SUCCEEDED:
        return Link.UP
    return Link.DOWN if event == zmq.Event.DISCONNECTED else None


class SocketMonitor:
    """Calls ``on_link`` on the loop's thread for every change of one socket's connection, in order.

    On ipc the kernel closes a dead peer's connection at once: DOWN comes about a millisecond after its kill -9.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        socket: zmq.Socket[bytes],
        loop: asyncio.AbstractEventLoop,
        on_link: Callable[[Link], None],
    ) -> None:
        self._watched = socket
        self._loop = loop
        self._on_link = on_link
        # The descriptor is unique among the open sockets of this process, so the name is too.
        endpoint = f"inproc://pisub-monitor-{int(socket.get(zmq.FD))}"
        socket.monitor(endpoint, zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED)
        self._pair: zmq.Socket[bytes] = context.socket(zmq.PAIR)
        self._pair.connect(endpoint)
        self._descriptor = int(self._pair.get(zmq.FD))
        loop.add_reader(self._descriptor, self._drain)
        # What arrived before the watch began has used up its edge.
        loop.call_soon(self._drain)

    def close(self) -> None:
        """Stop watching. Idempotent; must come before the watched socket is closed."""
        if self._pair.closed:
            return
        self._loop.remove_reader(self._descriptor)
        self._watched.disable_monitor()
        self._pair.close(0)

    def _drain(self) -> None:
        pair: Any = self._pair
        while not self._pair.closed and pair.get(_EVENTS) & _POLLIN:
            event = pair.recv(_NOBLOCK)
            while pair.get(zmq.RCVMORE):
                pair.recv(_NOBLOCK)
            link = parse_event(event)
            if link is not None:
                self._on_link(link)
