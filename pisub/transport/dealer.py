"""A DEALER socket on an asyncio loop, by watching its file descriptor.

Owns the socket and the edge-triggered dance that libzmq's descriptor needs; never uses ``zmq.asyncio``, which costs
seven times as much per message. Knows frames as bytes: what they mean is the client's affair.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import zmq

from pisub.errors import ProtocolError
from pisub.protocol.bundle import PRELUDE, split
from pisub.protocol.limits import HIGH_WATER_MARK
from pisub.transport.monitor import Link, SocketMonitor

# pyzmq's flags are enums; plain integers spare a conversion per call.
_NOBLOCK: Final = int(zmq.NOBLOCK)
_EVENTS: Final = int(zmq.EVENTS)
_POLLIN: Final = int(zmq.POLLIN)
_POLLOUT: Final = int(zmq.POLLOUT)

#: Messages taken per turn before other callbacks of the loop get theirs: about 2 ms of work.
_MESSAGES_PER_TURN: Final = 256
#: First try of libzmq to connect again, in ms, and all later ones (no back-off: the path is local).
_RECONNECT_MS: Final = 20
#: A broker whose process is stopped closes no connection. libzmq asks for a sign of life this often, and takes one for
#: lost that gave none for so long: generous, because a false alarm on a busy machine costs a reconnection.
_HEARTBEAT_MS: Final = 2_000
_SILENCE_MS: Final = 6_000


def new_context() -> zmq.Context[zmq.Socket[bytes]]:
    """Make a context. Call it after any fork, once per process; whoever calls it ends it."""
    return zmq.Context()


class Dealer:
    """One connection to a broker.

    ``on_message(stamp, frame)`` is called for every message, also for those in a bundle; ``on_room()`` whenever frames
    may fit again: it sends what waits and returns whether some still does. Both run on the loop's thread and must not
    raise.

    Delivery: what was accepted and not yet read by the broker when it dies is lost. What libzmq still holds then goes
    to the next broker ahead of the Hello, which drops it and says so (``hello_first``).
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        loop: asyncio.AbstractEventLoop,
        *,
        on_message: Callable[[bytes, bytes], None],
        on_room: Callable[[], bool],
        on_link: Callable[[Link], None],
        high_water_mark: int = HIGH_WATER_MARK,
    ) -> None:
        self._loop = loop
        self._on_message = on_message
        self._on_room = on_room
        self._endpoint = ""
        self._is_turn_due = False
        #: Whether nothing was sent since the last turn began. The first frame of a turn is sent at once, for the sake
        #: of a single call's latency; what follows is better collected and sent together, because libzmq's thread
        #: otherwise wakes, writes and sleeps for each.
        self.is_quiet = True
        self._socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        for option, value in (
            # With IMMEDIATE=1 libzmq takes the pipe of a broken connection away between two frames of one message,
            # where the 100th receive happens to be its second, and aborts the process (fq.cpp, "!_more").
            (zmq.IMMEDIATE, 0),
            (zmq.RECONNECT_IVL, _RECONNECT_MS),
            (zmq.SNDHWM, high_water_mark),
            (zmq.RCVHWM, high_water_mark),
            (zmq.LINGER, 0),
            (zmq.HEARTBEAT_IVL, _HEARTBEAT_MS),
            (zmq.HEARTBEAT_TIMEOUT, _SILENCE_MS),
        ):
            self._socket.set(option, value)
        # The sugar class wraps send in Python and types get by option: the bare methods are three times as fast.
        bare: Any = super(zmq.Socket, self._socket)
        self._send: Callable[[bytes, int], None] = bare.send
        self._receive: Callable[[int], bytes] = bare.recv
        self._get: Callable[[int], int] = bare.get
        self._monitor = SocketMonitor(context, self._socket, loop, on_link)
        self._descriptor = self._get(int(zmq.FD))
        loop.add_reader(self._descriptor, self._take_turn)

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._socket.closed

    def dial(self, endpoint: str) -> None:
        """Connect to an endpoint, leaving the one before. libzmq repeats the attempt until it succeeds.

        Raises:
            zmq.ZMQError: The endpoint is no endpoint.
        """
        self.hang_up()
        self._socket.connect(endpoint)
        self._endpoint = endpoint
        self.look()

    def hang_up(self) -> None:
        """Drop the connection, and what libzmq still holds for it. No effect without one."""
        if self._endpoint:
            self._socket.disconnect(self._endpoint)
            self._endpoint = ""

    def send(self, frame: bytes) -> bool:
        """Hand one frame to libzmq without blocking; False when there is no connection or no room.

        Sending may take the edge of an arriving message: the socket is looked at again in the next turn of the loop.
        """
        self.is_quiet = False
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._take_turn)
        try:
            self._send(frame, _NOBLOCK)
        except zmq.Again:
            return False
        return True

    def look(self) -> None:
        """Take a turn soon, whatever the descriptor says."""
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._take_turn)

    def realign(self) -> None:
        """Skip the rest of a message that had more frames than two."""
        while self._get(int(zmq.RCVMORE)):
            self._receive(_NOBLOCK)

    def close(self, *, linger_ms: int = 0) -> None:
        """Close the socket. Idempotent.

        Args:
            linger_ms: How long the context's end may wait for accepted frames to leave.
        """
        if self._socket.closed:
            return
        self._loop.remove_reader(self._descriptor)
        self._monitor.close()
        self._socket.close(linger_ms)

    def _take_bundle(self, message: bytes) -> int:
        """Take the messages of a bundle; one that is none is handed on as a message that nobody can read."""
        try:
            parts = split(message)
        except ProtocolError:
            parts = [message]
        if len(parts) % 2:
            self._on_message(message, b"")
            return 1
        for at in range(0, len(parts), 2):
            if not self._socket.closed:  # a message may have had it closed
                self._on_message(parts[at], parts[at + 1])
        return len(parts) // 2

    def _take_turn(self) -> None:
        if self._socket.closed:
            return
        self._is_turn_due = self.is_quiet = True  # what is sent during a turn needs no other one
        receive, on_message, get = self._receive, self._on_message, self._get
        events = get(_EVENTS)
        left = _MESSAGES_PER_TURN
        while left > 0:
            if events & _POLLIN:
                try:
                    while left > 0:
                        first = receive(_NOBLOCK)
                        if first.startswith(PRELUDE):
                            left -= self._take_bundle(first)
                        else:
                            on_message(first, receive(_NOBLOCK))
                            left -= 1
                except zmq.Again:
                    pass
                if self._socket.closed:
                    return
            is_waiting = self._on_room()
            # Reading EVENTS is what re-arms the descriptor: it must be the last thing done with the socket.
            events = get(_EVENTS)
            if not (events & _POLLIN or (is_waiting and events & _POLLOUT)):
                self._is_turn_due = False
                self.is_quiet = True
                return
        self._loop.call_soon(self._take_turn)
