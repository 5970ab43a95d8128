"""NATS with nats-py: its own request and reply."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.bus_worker import Pong
from benchmarks.load_lanes import serve_loads, serve_until_end
from benchmarks.rival_base import TIMEOUT_S, Answerer, Server, ping, pong, program, running

nats: Any = importlib.import_module("nats")

case: Final = "NATS, nats-py"
_SUBJECT: Final = "bench.answerer"


@contextmanager
def server(directory: Path) -> Generator[Server]:
    """Run a server on a port of its own choice, which it writes into a file."""

    def ports(pid: int) -> Path:
        return directory / f"nats-server_{pid}.ports"

    argv = [program("nats-server"), "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", str(directory)]
    with running(argv, directory, lambda pid: ports(pid).exists() and ports(pid).stat().st_size > 0) as pid:
        endpoint: str = msgspec.json.decode(ports(pid).read_bytes(), type=dict[str, list[str]])["nats"][0]
        yield Server(endpoint, pid)


def ask(endpoint: str) -> None:
    """Ask."""
    asyncio.run(_ask(endpoint))


def answer(endpoint: str) -> None:
    """Answer."""
    asyncio.run(_answer(endpoint))


async def _ask(endpoint: str) -> None:
    client = await nats.connect(endpoint)

    async def ask_one(number: int) -> Pong:
        return pong((await client.request(_SUBJECT, ping(number), timeout=TIMEOUT_S)).data)

    await serve_loads(ask_one)
    await client.close()


async def _answer(endpoint: str) -> None:
    client = await nats.connect(endpoint)
    answerer = Answerer()

    async def handle(message: Any) -> None:
        await message.respond(answerer(message.data))

    await client.subscribe(_SUBJECT, cb=handle)
    await client.flush()
    await serve_until_end()
    await client.close()
