"""A broker in the test's own loop that speaks the protocol and does as it is told.

By default it greets, routes calls, tells and published messages, grants roles; a test can take single steps instead,
refuse, be silent, go away and come back on the same path. It checks nothing: the real one does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import msgspec
import zmq

from pisub.process import own_identity
from pisub.protocol.base import Message
from pisub.protocol.codec import decode, encode, pack, pack_stamp, unpack
from pisub.protocol.delivery import Header, Kind, Stamp
from pisub.protocol.session import (
    Claim,
    Claimed,
    ControlRequest,
    Done,
    Failure,
    HeldRole,
    Hello,
    Leaving,
    Release,
    Subscribe,
    Welcome,
)


class Received(msgspec.Struct, frozen=True):
    route: bytes
    header: Header
    body: bytes


class FakeBroker:
    """Use as ``async with FakeBroker(path)``; ``kill`` and ``start`` stand for a broker's death and the next one."""

    def __init__(self, path: Path) -> None:
        self.endpoint = f"ipc://{path}"
        self.epoch = 0
        self.hellos: list[Hello] = []
        self.received: list[Received] = []
        #: Returns True for what it dealt with itself.
        self.intercept: Callable[[Received], bool] = lambda _: False
        self.is_welcoming = True
        #: As a fresh broker: calls to names that it does not know yet wait for their Hello.
        self.is_settling = True
        self._parked: list[tuple[Received, Stamp, bytes]] = []
        self.peers: dict[str, tuple[bytes, int]] = {}
        self.roles: dict[tuple[str, str], tuple[str, int]] = {}
        self.subscribers: list[tuple[str, str]] = []
        self._context: zmq.Context[Any] = zmq.Context()
        self._socket: zmq.Socket[bytes] | None = None
        self._generation = 0
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.kill()
        self._context.term()

    def locate(self) -> str:
        return self.endpoint

    def start(self) -> None:
        self.epoch += 1
        self.peers.clear()
        self.roles.clear()
        self.subscribers.clear()
        self._parked.clear()
        socket = self._context.socket(zmq.ROUTER)
        socket.linger = 0
        socket.sndhwm = socket.rcvhwm = 100_000
        socket.bind(self.endpoint)
        self._socket = socket
        asyncio.get_running_loop().add_reader(int(socket.get(zmq.FD)), self._drain)
        asyncio.get_running_loop().call_soon(self._drain)

    def kill(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(int(self._socket.get(zmq.FD)))
            self._socket.close(0)
            self._socket = None

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something received makes it so."""
        async with asyncio.timeout(10):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    def of(self, kind: int) -> list[Received]:
        return [each for each in self.received if each.header.kind == kind]

    def send(self, route: bytes, header: Header, message: Message | bytes = b"", *, stamp: Stamp | None = None) -> None:
        assert self._socket is not None
        body = encode(message) if isinstance(message, Message) else message
        stamp_frame = pack_stamp(stamp or Stamp(epoch=str(self.epoch)))
        self._socket.send_multipart([route, stamp_frame, pack(header, body)])
        asyncio.get_running_loop().call_soon(self._drain)

    def send_raw(self, route: bytes, *frames: bytes) -> None:
        assert self._socket is not None
        self._socket.send_multipart([route, *frames])
        asyncio.get_running_loop().call_soon(self._drain)

    def fail(self, to: Received, code: str, *, message_id: int | None = None) -> None:
        number = to.header.message_id if message_id is None else message_id
        self.send(to.route, Header(kind=Kind.FAIL, correlation_id=number), Failure(code=code, message=code))

    def leave(self, route: bytes) -> None:
        self.send(route, Header(kind=Kind.LEAVING), Leaving(reason="told"))

    def route_of(self, address: str) -> bytes:
        return self.peers[address][0]

    def _drain(self) -> None:
        while self._socket is not None and int(self._socket.get(zmq.EVENTS)) & zmq.POLLIN:
            route, frame = self._socket.recv_multipart(zmq.NOBLOCK)
            header, body = unpack(frame)
            received = Received(route, header, body)
            self.received.append(received)
            if not self.intercept(received):
                self._handle(received, frame)
        self._changed.set()

    def _handle(self, received: Received, frame: bytes) -> None:
        header = received.header
        if header.kind == Kind.HELLO:
            self._greet(received)
            return
        sender = next(((name, inc) for name, (route, inc) in self.peers.items() if route == received.route), None)
        if sender is None:
            self.fail(received, "hello_first")
            return
        stamp = Stamp(sender=sender[0], incarnation=sender[1], epoch=str(self.epoch))
        if header.kind == Kind.CONTROL:
            self._control(received, sender[0])
        elif header.kind == Kind.PUBLISH:
            for topic, address in self.subscribers:
                if header.topic == topic:
                    self._forward(self.route_of(address), stamp, frame)
        elif header.kind != Kind.GOODBYE:
            self._route(received, stamp, frame)

    def _route(self, received: Received, stamp: Stamp, frame: bytes) -> None:
        to = received.header.to
        if to.startswith("role:"):
            to = self.roles.get((to.removeprefix("role:"), received.header.scope), ("", 0))[0]
        address, _, incarnation = to.partition("@")
        found = self.peers.get(address)
        if found is None or (incarnation and int(incarnation) != found[1]):
            if received.header.kind in (Kind.CALL, Kind.TELL) and self.is_settling and found is None:
                self._parked.append((received, stamp, frame))
            elif received.header.kind == Kind.CALL:
                self.fail(received, "not_delivered")
            return
        if received.header.to.startswith("role:") and received.header.kind == Kind.CALL:
            routed = Header(kind=Kind.ROUTED, correlation_id=received.header.message_id, to=f"{address}@{found[1]}")
            self.send(received.route, routed)
        self._forward(found[0], stamp, frame)

    def _forward(self, route: bytes, stamp: Stamp, frame: bytes) -> None:
        self.send_raw(route, pack_stamp(stamp), frame)

    def _greet(self, received: Received) -> None:
        hello = decode(received.body, Hello)
        self.hellos.append(hello)
        if not self.is_welcoming:
            return
        self.peers[hello.address] = (received.route, hello.incarnation)
        roles = tuple(
            HeldRole(role=each.role, scope=each.scope, generation=self._grant(each.role, each.scope, hello.address))
            for each in hello.roles
            if each.generation
        )
        self.subscribers += [(each.topic, hello.address) for each in hello.subscriptions]
        welcome = Welcome(
            wire_version=1,
            address=hello.address,
            epoch=str(self.epoch),
            broker=own_identity(),
            authority=31,
            roles=roles,
        )
        self.send(received.route, Header(kind=Kind.WELCOME, correlation_id=received.header.message_id), welcome)
        parked, self._parked = self._parked, []
        for each in parked:
            self._route(*each)

    def _grant(self, role: str, scope: str, address: str) -> int:
        self._generation += 1
        self.roles[role, scope] = (address, self._generation)
        return self._generation

    def _control(self, received: Received, sender: str) -> None:
        kinds: Any = ControlRequest
        request = decode(received.body, kinds)
        answer: Message = Done()
        if isinstance(request, Claim):
            holder, generation = self.roles.get((request.role, request.scope), ("", 0))
            if holder not in ("", sender):
                if not request.wait:
                    self.fail(received, "role_taken")
                    return
                answer = Claimed(role=request.role, scope=request.scope, generation=0, position=1, holder=holder)
            else:
                generation = generation or self._grant(request.role, request.scope, sender)
                answer = Claimed(role=request.role, scope=request.scope, generation=generation, holder=sender)
        elif isinstance(request, Release):
            self.roles.pop((request.role, request.scope), None)
        elif isinstance(request, Subscribe):
            self.subscribers.append((request.topic, sender))
        self.send(received.route, Header(kind=Kind.REPLY, correlation_id=received.header.message_id), answer)
