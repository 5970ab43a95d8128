"""zerorpc through a broker: a service that calls the answering one. Greenlets, so its lanes are its own."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.harness import Sample, Worker, reply_line, serve_lines
from benchmarks.load_lanes import Load
from benchmarks.rival_base import TIMEOUT_S, Answerer, Server, ping, pong

gevent: Any = importlib.import_module("gevent")
zerorpc: Any = importlib.import_module("zerorpc")

case: Final = "zerorpc"
_KEEP_EVERY: Final = 8


class Broker:
    """Passes questions on."""

    def __init__(self, answerer: Any) -> None:
        self._answerer = answerer

    def ask(self, body: bytes) -> bytes:
        """Pass a question on, and its answer back."""
        answered: bytes = self._answerer.ask(body)
        return answered


class Answers:
    """Answers."""

    def __init__(self) -> None:
        self._answerer = Answerer()

    def ask(self, body: bytes) -> bytes:
        """Answer one question."""
        return self._answerer(body)


@contextmanager
def server(directory: Path) -> Generator[Server]:
    """Run the broker."""
    endpoint = f"ipc://{directory / 'broker.sock'}"
    with Worker("benchmarks.rival_worker", "zerorpc", "serve", endpoint) as worker:
        yield Server(endpoint, worker.pid)


def serve(endpoint: str) -> None:
    """Be the broker's process."""
    _serve(Broker(_client(_answerer_of(endpoint))), endpoint)


def answer(endpoint: str) -> None:
    """Answer."""
    _serve(Answers(), _answerer_of(endpoint))


def ask(endpoint: str) -> None:
    """Ask."""
    client = _client(endpoint)
    asked = 0

    def carry_out(line: bytes) -> Sample:
        nonlocal asked
        load = msgspec.json.decode(line, type=Load)
        sample = _keep_asking(client, load, asked)
        asked += sample.count
        return sample

    serve_lines(carry_out)


def _answerer_of(endpoint: str) -> str:
    return endpoint.replace("broker.sock", "answerer.sock")


def _client(endpoint: str) -> Any:
    client = zerorpc.Client(timeout=TIMEOUT_S, heartbeat=None)
    client.connect(endpoint)
    return client


def _serve(service: object, endpoint: str) -> None:
    server = zerorpc.Server(service, heartbeat=None)
    server.bind(endpoint)

    def end_with_input() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=end_with_input, daemon=True).start()
    reply_line("ready")
    server.run()


def _keep_asking(client: Any, load: Load, first: int) -> Sample:
    latencies: list[float] = []
    number = first
    lost = doubled = foreign = 0
    begin = time.perf_counter()
    end = begin + load.seconds

    def lane() -> None:
        nonlocal number, lost, doubled, foreign
        while (asked_at := time.perf_counter()) < end:
            number += 1
            mine = number
            try:
                given = pong(client.ask(ping(mine)))
            except zerorpc.TimeoutExpired:
                lost += 1
                continue
            foreign += given.number != mine
            doubled += given.times - 1
            if not mine % _KEEP_EVERY:
                latencies.append((time.perf_counter() - asked_at) * 1000)

    gevent.joinall([gevent.spawn(lane) for _ in range(load.k)], raise_error=True)
    return Sample(
        count=number - first,
        elapsed_s=time.perf_counter() - begin,
        latencies_ms=latencies,
        lost=lost,
        doubled=doubled,
        foreign=foreign,
    )
