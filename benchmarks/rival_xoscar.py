"""xoscar: the asker calls a broker actor in a pool of its own, which calls the answering actor in another's."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.bus_worker import Pong
from benchmarks.harness import Worker
from benchmarks.load_lanes import serve_loads, serve_until_end
from benchmarks.rival_base import TIMEOUT_S, Answerer, Server, free_port, ping, pong

xoscar: Any = importlib.import_module("xoscar")

case: Final = "xoscar"
_BROKER: Final = "bench-broker"
_ANSWERER: Final = "bench-answerer"


class Broker(xoscar.StatelessActor):  # type: ignore[misc]  # a rival's class is Any here
    """Knows who answers, and passes questions on."""

    async def enter(self, address: str) -> None:
        """Note who answers."""
        self._answerer = await xoscar.actor_ref(address, _ANSWERER)

    async def ask(self, body: bytes) -> bytes:
        """Pass a question on, and its answer back."""
        answered: bytes = await self._answerer.ask(body)
        return answered


class AnsweringActor(xoscar.StatelessActor):  # type: ignore[misc]  # a rival's class is Any here
    """Answers."""

    def __init__(self) -> None:
        self._answerer = Answerer()

    async def ask(self, body: bytes) -> bytes:
        """Answer one question."""
        return self._answerer(body)


@contextmanager
def server(directory: Path) -> Generator[Server]:
    """Run the broker's pool; xoscar keeps no files."""
    del directory
    address = f"127.0.0.1:{free_port()}"
    with Worker("benchmarks.rival_worker", "xoscar", "serve", address) as worker:
        yield Server(address, worker.pid)


def serve(endpoint: str) -> None:
    """Be the broker's process."""
    asyncio.run(_serve(endpoint))


def ask(endpoint: str) -> None:
    """Ask."""
    asyncio.run(_ask(endpoint))


def answer(endpoint: str) -> None:
    """Answer."""
    asyncio.run(_answer(endpoint))


async def _serve(endpoint: str) -> None:
    pool = await xoscar.create_actor_pool(endpoint, n_process=0)
    await xoscar.create_actor(Broker, uid=_BROKER, address=endpoint)
    await serve_until_end()
    await pool.stop()


async def _answer(endpoint: str) -> None:
    mine = f"127.0.0.1:{free_port()}"
    pool = await xoscar.create_actor_pool(mine, n_process=0)
    await xoscar.create_actor(AnsweringActor, uid=_ANSWERER, address=mine)
    broker = await xoscar.actor_ref(endpoint, _BROKER)
    await broker.enter(mine)
    await serve_until_end()
    await pool.stop()


async def _ask(endpoint: str) -> None:
    broker = await xoscar.actor_ref(endpoint, _BROKER)

    async def ask_one(number: int) -> Pong:
        async with asyncio.timeout(TIMEOUT_S):
            return pong(await broker.ask(ping(number)))

    await serve_loads(ask_one)
