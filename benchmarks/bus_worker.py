"""The processes of ``benchmarks.bus``: one that asks, one that answers, through pisub and without it.

Both ways ask with the same tasks and the same payload, and check every answer against its question.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import Any, Final

import msgspec
import zmq

from benchmarks.harness import reply_line
from benchmarks.load_lanes import Seen, serve_loads, serve_until_end
from pisub.client.bus import Bus
from pisub.config import load_settings
from pisub.protocol.base import Message
from pisub.protocol.session import PeerKind
from pisub.transport.dealer import new_context

_NOBLOCK: Final = int(zmq.NOBLOCK)
_EVENTS: Final = int(zmq.EVENTS)
_POLLIN: Final = int(zmq.POLLIN)
_PAYLOAD: Final = "x" * 300
_ANSWERER: Final = "bench-answerer"


class Ping(Message, frozen=True, kw_only=True, tag="bench:ping"):
    """A question of 300 bytes."""

    number: int
    payload: str


class Pong(Message, frozen=True, kw_only=True, tag="bench:pong"):
    """Its answer, of as many."""

    number: int
    payload: str
    #: How often the handler was called with this number.
    times: int = 1


# Through pisub. --------------------------------------------------------------------------------------------------


async def ask_by_bus() -> None:
    async with await Bus.connect(load_settings(), kind=PeerKind.CLIENT) as bus:

        async def ask(number: int) -> Pong:
            return await bus.call(_ANSWERER, Ping(number=number, payload=_PAYLOAD), Pong, timeout_s=30)

        await serve_loads(ask)


async def answer_by_bus() -> None:
    seen = Seen()
    async with await Bus.connect(load_settings(), kind=PeerKind.CLIENT, address=_ANSWERER) as bus:
        bus.serve(Ping, lambda ping, _: Pong(number=ping.number, payload=ping.payload, times=seen(ping.number)))
        await serve_until_end()


# Without it. -----------------------------------------------------------------------------------------------------


class BareHeader(msgspec.Struct, array_like=True, frozen=True):
    """What the forwarder reads of a frame."""

    to: str
    sender: str
    number: int


class BareFrame(msgspec.Struct, array_like=True, frozen=True):
    """The whole frame, as its receiver reads it."""

    to: str
    sender: str
    number: int
    message: Ping | Pong


class BareClient:
    """A DEALER whose descriptor is watched, and a dict of futures: nothing else."""

    def __init__(self, endpoint: str, name: str) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[Pong]] = {}
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(BareFrame).decode
        self._is_due = False
        self._seen = Seen()
        socket: zmq.Socket[bytes] = new_context().socket(zmq.DEALER)
        socket.set(zmq.ROUTING_ID, name.encode())
        socket.set_hwm(100_000)
        socket.connect(endpoint)
        bare: Any = super(zmq.Socket, socket)
        self._send, self._receive, self._get = bare.send, bare.recv, bare.get
        self._socket = socket
        self._loop.add_reader(int(socket.get(zmq.FD)), self._drain)

    async def ask(self, number: int) -> Pong:
        """Ask, and wait for the answer."""
        waiter: asyncio.Future[Pong]
        waiter = self._waiting[number] = self._loop.create_future()
        self._post(BareFrame(_ANSWERER, self._name, number, Ping(number=number, payload=_PAYLOAD)))
        return await waiter

    def _post(self, frame: BareFrame) -> None:
        self._send(self._encode(frame), _NOBLOCK)
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        self._is_due = False
        while self._get(_EVENTS) & _POLLIN:
            try:
                while True:
                    self._take(self._decode(self._receive(_NOBLOCK)))
            except zmq.Again:
                pass

    def _take(self, frame: BareFrame) -> None:
        message = frame.message
        if isinstance(message, Ping):
            pong = Pong(number=message.number, payload=message.payload, times=self._seen(message.number))
            self._post(BareFrame(frame.sender, self._name, frame.number, pong))
        else:
            self._waiting.pop(frame.number).set_result(message)


async def ask_barely(endpoint: str) -> None:
    client = BareClient(endpoint, "bench-asker")
    await serve_loads(client.ask)


async def answer_barely(endpoint: str) -> None:
    client = BareClient(endpoint, _ANSWERER)
    await serve_loads(client.ask)


def forward_barely(endpoint: str) -> None:
    """Forward each frame to the name in its header: the fastest plain loop of pyzmq that there is."""
    socket: zmq.Socket[bytes] = new_context().socket(zmq.ROUTER)
    socket.set_hwm(100_000)
    socket.bind(endpoint)
    bare: Any = super(zmq.Socket, socket)
    receive, send = bare.recv, bare.send
    decode = msgspec.msgpack.Decoder(BareHeader).decode
    more = int(zmq.SNDMORE)
    threading.Thread(target=_end_with_input, daemon=True).start()
    reply_line("ready")
    while True:
        batch: list[tuple[bytes, bytes]] = []
        receive(0)
        frame = receive(_NOBLOCK)
        batch.append((decode(frame).to.encode(), frame))
        try:
            while len(batch) < 64:
                receive(_NOBLOCK)
                frame = receive(_NOBLOCK)
                batch.append((decode(frame).to.encode(), frame))
        except zmq.Again:
            pass
        for route, each in batch:
            send(route, more)
            send(each, _NOBLOCK)


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main(mode: str, endpoint: str = "") -> None:
    """Be one of the processes."""
    match mode:
        case "ask":
            asyncio.run(ask_by_bus())
        case "answer":
            asyncio.run(answer_by_bus())
        case "bare-ask":
            asyncio.run(ask_barely(endpoint))
        case "bare-answer":
            asyncio.run(answer_barely(endpoint))
        case _:
            forward_barely(endpoint)


if __name__ == "__main__":
    main(*sys.argv[1:])
