"""autogen-core's runtime over gRPC: a host, and a worker runtime on each side; the messages are dataclasses."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import Worker
from benchmarks.load_lanes import Seen, serve_loads, serve_until_end
from benchmarks.rival_base import PAYLOAD, TIMEOUT_S, Server, accepts, free_port, wait_for

core: Any = importlib.import_module("autogen_core")
over_grpc: Any = importlib.import_module("autogen_ext.runtimes.grpc")

case: Final = "autogen-core gRPC"
_ANSWERER: Final = "bench_answerer"


@dataclasses.dataclass
class Question:
    """A question of 300 bytes, in the form that autogen serializes."""

    number: int
    payload: str


@dataclasses.dataclass
class Answered:
    """Its answer, of as many."""

    number: int
    payload: str
    times: int


class AnsweringAgent(core.BaseAgent):  # type: ignore[misc]  # a rival's class is Any here
    """Answers."""

    def __init__(self) -> None:
        core.BaseAgent.__init__(self, "answers")
        self._seen = Seen()

    async def on_message_impl(self, message: Question, ctx: Any) -> Answered:
        """Answer one question."""
        del ctx
        return Answered(message.number, message.payload, self._seen(message.number))


@contextmanager
def server(directory: Path) -> Generator[Server]:
    """Run the host; it keeps no files."""
    del directory
    address = f"127.0.0.1:{free_port()}"
    with Worker("benchmarks.rival_worker", "autogen", "serve", address) as worker:
        yield Server(address, worker.pid)


def serve(endpoint: str) -> None:
    """Be the host's process."""
    asyncio.run(_serve(endpoint))


def ask(endpoint: str) -> None:
    """Ask."""
    asyncio.run(_ask(endpoint))


def answer(endpoint: str) -> None:
    """Answer."""
    asyncio.run(_answer(endpoint))


async def _serve(endpoint: str) -> None:
    host = over_grpc.GrpcWorkerAgentRuntimeHost(address=endpoint)
    host.start()
    await asyncio.to_thread(wait_for, lambda: accepts(int(endpoint.rpartition(":")[2])))
    await serve_until_end()
    await host.stop(grace=0)


async def _enter(endpoint: str) -> Any:
    runtime = over_grpc.GrpcWorkerAgentRuntime(host_address=endpoint)
    for kind in (Question, Answered):
        runtime.add_message_serializer(core.try_get_known_serializers_for_type(kind))
    await runtime.start()
    return runtime


async def _answer(endpoint: str) -> None:
    runtime = await _enter(endpoint)
    await AnsweringAgent.register(runtime, _ANSWERER, AnsweringAgent, skip_class_subscriptions=True)
    await serve_until_end()
    await runtime.stop()


async def _ask(endpoint: str) -> None:
    runtime = await _enter(endpoint)
    recipient = core.AgentId(_ANSWERER, "default")

    async def ask_one(number: int) -> Answered:
        async with asyncio.timeout(TIMEOUT_S):
            answered: Answered = await runtime.send_message(Question(number, PAYLOAD), recipient)
            return answered

    await serve_loads(ask_one)
    await runtime.stop()
