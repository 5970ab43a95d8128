"""The broker's sockets: the ROUTER, and the monitor that says when a connection broke.

Owns every call into ZeroMQ, on bare ``zmq.backend`` sockets with integer flags, because `recv_multipart` costs ten
times as much. It must not know what a frame means.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket as sockets
import struct
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

import msgspec
import zmq
from zmq.backend import Socket

from pisub.protocol import bundle
from pisub.protocol.limits import HIGH_WATER_MARK, MAX_BUNDLE_BYTES, MAX_BUNDLE_PARTS, MAX_FRAME_BYTES

from .effects import Send
from .events import SendFailed
from .liveness import Credentials, parse_peer_address
from .more import MoreFlag

BATCH: Final = 64
_BUNDLE: Final = bundle.PRELUDE
_NOBLOCK: Final = int(zmq.NOBLOCK)
_MORE: Final = int(zmq.SNDMORE) | _NOBLOCK
_RCVMORE: Final = int(zmq.RCVMORE)
_EVENTS: Final = int(zmq.EVENTS)
_FD: Final = int(zmq.FD)
_POLLIN: Final = int(zmq.POLLIN)
#: Frames over the protocol's bound, up to this, are refused with a reason; beyond it libzmq drops the connection.
_MAX_RECEIVED_BYTES: Final = 16 * MAX_FRAME_BYTES
_MONITOR: Final = "inproc://broker-monitor"
_EVENT: Final = struct.Struct("=Hi")
#: How long leaving messages may take to reach the kernel.
_LINGER_MS: Final = 200


class Connection(msgspec.Struct):
    """One connection, from its first message on."""

    descriptor: int
    credentials: Credentials | None


class Received(msgspec.Struct, frozen=True):
    """The frames of one message; none where it is none of ours: of several parts, or a bundle that does not add up."""

    route: bytes
    frames: list[bytes]


class Wire:
    """The ROUTER socket of one broker, bound to a path."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], path: Path) -> None:
        self._endpoint = f"ipc://{path}"
        self._socket = Socket(context, zmq.ROUTER)
        self._set(zmq.LINGER, _LINGER_MS)
        self._set(zmq.IPV6, 0)
        self._set(zmq.SNDHWM, HIGH_WATER_MARK)
        self._set(zmq.RCVHWM, HIGH_WATER_MARK)
        self._set(zmq.ROUTER_MANDATORY, 1)
        self._set(zmq.MAXMSGSIZE, _MAX_RECEIVED_BYTES)
        self._set(zmq.BACKLOG, 1024)
        self._socket.monitor(_MONITOR, int(zmq.Event.DISCONNECTED))
        self._monitor = Socket(context, zmq.PAIR)
        self._monitor.set(int(zmq.LINGER), 0)
        self._monitor.set(int(zmq.RCVHWM), 0)
        self._monitor.connect(_MONITOR)
        self._monitor_descriptor = int(self._monitor.get(_FD))
        self._poll = select.poll()
        self._poll.register(int(self._socket.get(_FD)), select.POLLIN)
        self._poll.register(self._monitor_descriptor, select.POLLIN)
        self._also = -1
        self.disconnected()  # what has been read to its end once is signalled from then on
        self._more = MoreFlag(self._socket)
        self._is_bound = False
        self.is_drained = True

    def _set(self, option: int, value: int) -> None:
        self._socket.set(int(option), value)

    def bind(self) -> None:
        """Bind the path. It must be free: libzmq would unlink what lies there."""
        self._socket.bind(self._endpoint)
        self._is_bound = True

    def unbind(self) -> None:
        """Accept no more connections. Idempotent; the socket's file goes with it."""
        if self._is_bound:
            self._is_bound = False
            with contextlib.suppress(zmq.ZMQError):  # the path was taken away
                self._socket.unbind(self._endpoint)

    def receive(
        self, known: dict[bytes, Connection]
    ) -> tuple[list[tuple[bytes, bytes]], Received | None, Connection | None]:
        """Receive without waiting until there are ``BATCH`` frames, or a bundle's more.

        Stops early at a message that is not of a known connection, or none of ours, and returns it apart, with what
        the kernel says about its connection if that is new.
        """
        receive, read_more, more = self._socket.recv, self._more.read, self._more.value
        items: list[tuple[bytes, bytes]] = []
        self.is_drained = False
        try:
            while len(items) < BATCH:
                route = receive(_NOBLOCK)
                if route not in known:
                    return items, *self._first(route)
                frame = receive(_NOBLOCK)
                read_more()
                if more.value:
                    self._skip_rest()
                    return items, Received(route, []), None
                if frame.startswith(_BUNDLE):
                    frames = bundle.frames_of(frame)
                    if not frames:
                        return items, Received(route, []), None
                    items += [(route, each) for each in frames]
                else:
                    items.append((route, frame))
        except zmq.Again:
            self.is_drained = True
        return items, None, None

    def _first(self, route: bytes) -> tuple[Received, Connection]:
        frame = self._socket.recv(_NOBLOCK, copy=False)
        is_multipart = frame.more
        try:
            credentials = parse_peer_address(str(frame.get("Peer-Address")))
        except zmq.ZMQError:
            credentials = None
        connection = Connection(int(frame.get(zmq.SRCFD)), credentials)
        data = frame.bytes
        if is_multipart:
            self._skip_rest()
        return Received(route, [] if is_multipart else bundle.frames_of(data)), connection

    def _skip_rest(self) -> None:
        while self._socket.get(_RCVMORE):
            self._socket.recv(_NOBLOCK)

    def send_all(self, sends: list[Send], bundling: AbstractSet[bytes]) -> list[SendFailed]:
        """Send messages without waiting, in order for each receiver.

        After the first that finds a receiver's pipe full, all that follow for the same receiver fail too: they must
        not overtake it.

        Args:
            sends: The messages.
            bundling: Receivers that may get several in one.

        Returns:
            What was not sent, in order.
        """
        if len(sends) == 1 or not bundling:
            return self._send_in_turn(sends)
        alone: list[Send] = []
        together: dict[bytes, list[Send]] = {}
        for each in sends:
            route = each[0]
            if route not in bundling:
                alone.append(each)
            elif (some := together.get(route)) is None:
                together[route] = [each]
            else:
                some.append(each)
        failed = self._send_in_turn(alone)
        for some in together.values():
            sent, is_gone = self._send_bundled(some)
            failed += [SendFailed(*each, is_gone) for each in some[sent:]]
        return failed

    def _send_in_turn(self, sends: list[Send]) -> list[SendFailed]:
        send = self._socket.send
        failed: list[SendFailed] = []
        blocked: set[bytes] = set()
        for route, stamp, frame in sends:
            if blocked and route in blocked:
                failed.append(SendFailed(route, stamp, frame))
                continue
            try:
                send(route, _MORE)
                send(stamp, _MORE)
                send(frame, _NOBLOCK)
            except zmq.Again:
                blocked.add(route)
                failed.append(SendFailed(route, stamp, frame))
            except zmq.ZMQError as error:
                if error.errno != zmq.EHOSTUNREACH:
                    raise
                failed.append(SendFailed(route, stamp, frame, is_gone=True))
        return failed

    def send_some(self, sends: list[Send], bundling: AbstractSet[bytes]) -> tuple[int, bool]:
        """Send messages to one receiver without waiting, up to the first that does not fit.

        Returns:
            How many were sent, and whether the receiver is gone.
        """
        if sends[0][0] in bundling:
            return self._send_bundled(sends)
        failed = self._send_in_turn(sends)
        return len(sends) - len(failed), any(each.is_gone for each in failed)

    def _send_bundled(self, sends: list[Send]) -> tuple[int, bool]:
        send = self._socket.send
        sent = 0
        try:
            while sent < len(sends):
                some = _fitting(sends, sent)
                route, stamp, frame = some[0]
                send(route, _MORE)
                if len(some) == 1:
                    send(stamp, _MORE)
                    send(frame, _NOBLOCK)
                else:
                    send(bundle.join([part for _, *parts in some for part in parts]), _NOBLOCK)
                sent += len(some)
        except zmq.Again:
            return sent, False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return sent, True
        return sent, False

    def disconnected(self) -> list[int]:
        """Return the descriptors of the connections that broke since the last call, in order."""
        found: list[int] = []
        try:
            while True:
                event = self._monitor.recv(_NOBLOCK)
                self._monitor.recv(_NOBLOCK)
                found.append(_EVENT.unpack(event)[1])
        except zmq.Again:
            return found

    def cut(self, connection: Connection) -> None:
        """Break a connection, by its descriptor: libzmq has no word for it.

        The descriptor may belong to a later connection by now, so the kernel is asked whose it is.
        """
        try:
            copy = sockets.socket(fileno=os.dup(connection.descriptor))
        except OSError:
            return
        with copy, contextlib.suppress(OSError):
            pid, _, _ = struct.unpack("3i", copy.getsockopt(sockets.SOL_SOCKET, sockets.SO_PEERCRED, 12))
            if connection.credentials is not None and pid == connection.credentials.pid:
                copy.shutdown(sockets.SHUT_RDWR)

    def wait(self, timeout_ms: int, also: int) -> bool:
        """Wait until a message, a broken connection, room in a full pipe or a readable descriptor ``also`` is there.

        Both sockets' descriptors are signalled once for each change, so what came must have been taken: by ``receive``
        until ``is_drained``, by ``disconnected``.

        Returns:
            Whether a connection may have broken: ``disconnected`` says which.
        """
        if self._also != also:
            self._also = also
            self._poll.register(also, select.POLLIN)
        if int(self._socket.get(_EVENTS)) & _POLLIN:  # a send may have taken the signal of a message
            return False
        return any(descriptor == self._monitor_descriptor for descriptor, _ in self._poll.poll(timeout_ms))

    def close(self) -> None:
        """Close both sockets; what was sent may still leave for ``_LINGER_MS``."""
        self._socket.monitor(None, 0)
        self._monitor.close()
        self._socket.close()


def _fitting(sends: list[Send], start: int) -> list[Send]:
    """Return the messages from ``start`` on that go in one bundle: one at least."""
    end, left = start + 1, MAX_BUNDLE_BYTES - len(sends[start][1]) - len(sends[start][2])
    last = min(len(sends), start + MAX_BUNDLE_PARTS // 2)
    while end < last and (left := left - len(sends[end][1]) - len(sends[end][2])) >= 0:
        end += 1
    return sends[start:end]
