"""``zmq.asyncio`` clients through a forwarder: what most programs with ZeroMQ and asyncio do."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import zmq
import zmq.asyncio

from benchmarks.bus_worker import BareFrame, Ping, Pong
from benchmarks.harness import Worker
from benchmarks.load_lanes import Seen, serve_loads, serve_until_end
from benchmarks.rival_base import PAYLOAD, Server

case: Final = "zmq.asyncio"
_ANSWERER: Final = "bench-answerer"
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(BareFrame).decode


@contextmanager
def server(directory: Path) -> Generator[Server]:
    """Run the bare forwarder of the bus benchmark."""
    endpoint = f"ipc://{directory / 'zmq.sock'}"
    with Worker("benchmarks.bus_worker", "bare-forward", endpoint) as forwarder:
        yield Server(endpoint, forwarder.pid)


def ask(endpoint: str) -> None:
    """Ask, with a dict of futures and a task that receives."""
    asyncio.run(_ask(endpoint))


def answer(endpoint: str) -> None:
    """Answer."""
    asyncio.run(_answer(endpoint))


def _dealer(endpoint: str, name: str) -> zmq.asyncio.Socket:
    dealer = zmq.asyncio.Context().socket(zmq.DEALER)
    dealer.set(zmq.ROUTING_ID, name.encode())
    dealer.set_hwm(100_000)
    dealer.set(zmq.LINGER, 0)
    dealer.connect(endpoint)
    return dealer


async def _ask(endpoint: str) -> None:
    dealer = _dealer(endpoint, "bench-asker")
    waiting: dict[int, asyncio.Future[Pong]] = {}

    async def ask_one(number: int) -> Pong:
        waiter: asyncio.Future[Pong] = asyncio.get_running_loop().create_future()
        waiting[number] = waiter
        await dealer.send(_encode(BareFrame(_ANSWERER, "bench-asker", number, Ping(number=number, payload=PAYLOAD))))
        return await waiter

    async def receive() -> None:
        while True:
            frame = _decode(await dealer.recv())
            if isinstance(frame.message, Pong):
                waiting.pop(frame.number).set_result(frame.message)

    receiving = asyncio.create_task(receive())
    await serve_loads(ask_one)
    receiving.cancel()
    dealer.close()


async def _answer(endpoint: str) -> None:
    dealer = _dealer(endpoint, _ANSWERER)
    seen = Seen()

    async def receive() -> None:
        while True:
            frame = _decode(await dealer.recv())
            asked = frame.message
            given = Pong(number=asked.number, payload=asked.payload, times=seen(asked.number))
            await dealer.send(_encode(BareFrame(frame.sender, _ANSWERER, frame.number, given)))

    receiving = asyncio.create_task(receive())
    await serve_until_end()
    receiving.cancel()
    dealer.close()
