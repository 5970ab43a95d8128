"""Redis lists with redis-py's asyncio client: a list of questions, a list of answers, futures by number.

Each question and each answer is one LPUSH, on a pool of sixteen connections; each side takes with BRPOP on one of its
own.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.bus_worker import Pong
from benchmarks.load_lanes import serve_loads, serve_until_end
from benchmarks.rival_base import TIMEOUT_S, Answerer, Server, ping, pong, program, running

redis: Any = importlib.import_module("redis.asyncio")

case: Final = "Redis lists"
_QUESTIONS: Final = "bench:questions"
_ANSWERS: Final = "bench:answers"
_CONNECTIONS: Final = 16


@contextmanager
def server(directory: Path) -> Generator[Server]:
    """Run a server on a unix socket, without a port and without files."""
    path = directory / "redis.sock"
    argv = [program("redis-server"), "--port", "0", "--unixsocket", str(path), "--save", "", "--appendonly", "no"]
    with running([*argv, "--dir", str(directory)], directory, lambda _: path.exists()) as pid:
        yield Server(str(path), pid)


def ask(endpoint: str) -> None:
    """Ask."""
    asyncio.run(_ask(endpoint))


def answer(endpoint: str) -> None:
    """Answer."""
    asyncio.run(_answer(endpoint))


def _writer(path: str) -> Any:
    pool = redis.BlockingConnectionPool(
        connection_class=redis.UnixDomainSocketConnection, path=path, max_connections=_CONNECTIONS, timeout=TIMEOUT_S
    )
    return redis.Redis(connection_pool=pool)


async def _take(path: str, name: str, handle: Callable[[bytes], Awaitable[None]]) -> None:
    reader = redis.Redis(unix_socket_path=path, single_connection_client=True)
    try:
        while True:
            _, body = await reader.brpop(name)
            await handle(body)
    finally:
        await reader.aclose()


async def _ask(endpoint: str) -> None:
    writer = _writer(endpoint)
    waiting: dict[int, asyncio.Future[Pong]] = {}

    async def ask_one(number: int) -> Pong:
        waiter: asyncio.Future[Pong] = asyncio.get_running_loop().create_future()
        waiting[number] = waiter
        await writer.lpush(_QUESTIONS, ping(number))
        async with asyncio.timeout(TIMEOUT_S):
            return await waiter

    async def handle(body: bytes) -> None:
        given = pong(body)
        waiting.pop(given.number).set_result(given)

    receiving = asyncio.create_task(_take(endpoint, _ANSWERS, handle))
    await serve_loads(ask_one)
    await _end(receiving)
    await writer.aclose()


async def _answer(endpoint: str) -> None:
    writer = _writer(endpoint)
    answerer = Answerer()
    # A task for each, as in the other rivals: an answer must not wait until the one before it is written.
    writes: set[asyncio.Task[None]] = set()

    async def handle(body: bytes) -> None:
        task = asyncio.create_task(writer.lpush(_ANSWERS, answerer(body)))
        writes.add(task)
        task.add_done_callback(writes.discard)

    receiving = asyncio.create_task(_take(endpoint, _QUESTIONS, handle))
    await serve_until_end()
    await _end(receiving)
    await writer.aclose()


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
