"""RabbitMQ with aio-pika: a queue of questions, a queue of answers for the asker alone, futures by correlation id.

The node has a port mapper of its own, so that it meets no other node of the machine.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.bus_worker import Pong
from benchmarks.load_lanes import serve_loads, serve_until_end
from benchmarks.rival_base import TIMEOUT_S, Answerer, Server, accepts, free_port, ping, pong, program, running

aio_pika: Any = importlib.import_module("aio_pika")

case: Final = "RabbitMQ, aio-pika"
_QUESTIONS: Final = "bench-questions"
#: Debian's program on PATH changes to a user of its own, who may not write into our directory.
_DEBIAN: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_PREFETCH: Final = 1000


@contextmanager
def server(directory: Path) -> Generator[Server]:
    """Run a node on the loopback with all its files in ``directory``."""
    argv = [str(_DEBIAN) if _DEBIAN.exists() else program("rabbitmq-server")]
    port, mapper_port = free_port(), free_port()
    environ = {
        "ERL_EPMD_PORT": str(mapper_port),
        "HOME": str(directory),
        "RABBITMQ_CONF_ENV_FILE": str(directory / "none.conf"),
        "RABBITMQ_CONFIG_FILE": str(directory / "none"),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
    }
    mapper_files = directory / "mapper"
    mapper_files.mkdir()
    mapper = [program("epmd"), "-port", str(mapper_port), "-address", "127.0.0.1"]
    with (
        running(mapper, mapper_files, lambda _: accepts(mapper_port)),
        running(argv, directory, lambda _: accepts(port), environ=environ) as pid,
    ):
        # What is started is a script; the node is the process below it that works.
        family = psutil.Process(pid).children(recursive=True)
        node = next((each for each in family if each.name().startswith("beam")), psutil.Process(pid))
        try:
            yield Server(f"amqp://guest:guest@127.0.0.1:{port}/", node.pid)
        finally:
            node.kill()
            psutil.wait_procs(family, timeout=10)


def ask(endpoint: str) -> None:
    """Ask."""
    asyncio.run(_ask(endpoint))


def answer(endpoint: str) -> None:
    """Answer."""
    asyncio.run(_answer(endpoint))


async def _ask(endpoint: str) -> None:
    connection = await aio_pika.connect(endpoint)
    channel = await connection.channel(publisher_confirms=False)
    answers = await channel.declare_queue(exclusive=True)
    waiting: dict[str, asyncio.Future[Pong]] = {}

    async def take(message: Any) -> None:
        waiting.pop(message.correlation_id).set_result(pong(message.body))

    await answers.consume(take, no_ack=True)

    async def ask_one(number: int) -> Pong:
        waiter: asyncio.Future[Pong] = asyncio.get_running_loop().create_future()
        key = str(number)
        waiting[key] = waiter
        message = aio_pika.Message(ping(number), correlation_id=key, reply_to=answers.name)
        await channel.default_exchange.publish(message, routing_key=_QUESTIONS)
        async with asyncio.timeout(TIMEOUT_S):
            return await waiter

    await serve_loads(ask_one)
    await connection.close()


async def _answer(endpoint: str) -> None:
    connection = await aio_pika.connect(endpoint)
    channel = await connection.channel(publisher_confirms=False)
    await channel.set_qos(prefetch_count=_PREFETCH)
    questions = await channel.declare_queue(_QUESTIONS)
    answerer = Answerer()

    async def take(message: Any) -> None:
        given = aio_pika.Message(answerer(message.body), correlation_id=message.correlation_id)
        await channel.default_exchange.publish(given, routing_key=message.reply_to)

    await questions.consume(take, no_ack=True)
    await serve_until_end()
    await connection.close()
