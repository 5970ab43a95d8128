"""An asking process of any benchmark: K questions outstanding, each answer checked against its question.

Knows no transport: it is given one coroutine function that asks.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import msgspec

from benchmarks.harness import Sample, Worker, reply_line
from pisub.errors import PisubError

#: Every so many calls one latency is kept: enough for a p99, and no list of millions.
_KEEP_EVERY: Final = 8
#: More numbers than can be on their way.
_REMEMBERED: Final = 65_536


class Load(msgspec.Struct, frozen=True):
    """What an asking worker is told."""

    k: int
    seconds: float


class Reply(Protocol):
    """What must be known of an answer."""

    @property
    def number(self) -> int:
        """Which question it answers."""
        ...

    @property
    def times(self) -> int:
        """How often the answerer was asked it."""
        ...


class Verdict(msgspec.Struct, frozen=True):
    """A reply whose transport has another form: ``number`` is -1 where the answer is another question's."""

    number: int
    times: int = 1


Ask = Callable[[int], Awaitable[Reply]]


async def keep_asking(ask: Ask, load: Load, first: int) -> Sample:
    """Keep ``load.k`` questions outstanding for ``load.seconds``; numbers count from ``first``."""
    latencies: list[float] = []
    number = first
    lost = doubled = foreign = 0
    begin = time.perf_counter()
    end = begin + load.seconds

    async def lane() -> None:
        nonlocal number, lost, doubled, foreign
        while (asked_at := time.perf_counter()) < end:
            number += 1
            mine = number
            try:
                reply = await ask(mine)
            except (PisubError, TimeoutError):
                lost += 1
                continue
            foreign += reply.number != mine
            doubled += reply.times - 1
            if not mine % _KEEP_EVERY:
                latencies.append((time.perf_counter() - asked_at) * 1000)

    await asyncio.gather(*(lane() for _ in range(load.k)))
    return Sample(
        count=number - first,
        elapsed_s=time.perf_counter() - begin,
        latencies_ms=latencies,
        lost=lost,
        doubled=doubled,
        foreign=foreign,
    )


async def serve_loads(ask: Ask) -> None:
    """Be a worker that carries out loads."""
    asked = 0

    async def carry_out(line: bytes) -> Sample:
        nonlocal asked
        sample = await keep_asking(ask, msgspec.json.decode(line, type=Load), asked)
        asked += sample.count
        return sample

    await serve_lines_on_loop(carry_out)


async def serve_lines_on_loop(handle: Callable[[bytes], Awaitable[object]]) -> None:
    """Be a worker on this loop until its lines end; they are read in a thread, which costs the loop nothing."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        for line in sys.stdin.buffer:
            loop.call_soon_threadsafe(lines.put_nowait, line)
        loop.call_soon_threadsafe(lines.put_nowait, b"")

    threading.Thread(target=read, daemon=True).start()
    reply_line("ready")
    while line := await lines.get():
        reply_line(await handle(line))


async def serve_until_end() -> None:
    """Be a worker that only answers others: it has nothing to say to the benchmark."""

    async def refuse(line: bytes) -> object:
        raise ValueError(f"this worker takes no load: {line!r}")

    await serve_lines_on_loop(refuse)


class Seen:
    """Counts calls per number; keeps the newest few thousand."""

    def __init__(self) -> None:
        self._times: dict[int, int] = {}

    def __call__(self, number: int) -> int:
        """Return how often this number has come, this time included."""
        times = self._times
        times[number] = count = times.get(number, 0) + 1
        if len(times) > _REMEMBERED:
            for old in list(times)[: _REMEMBERED // 2]:
                del times[old]
        return count


def spread(k: int, over: int) -> list[int]:
    """Share ``k`` out as evenly as it goes."""
    return [k // over + (number < k % over) for number in range(over)]


def ask_all(workers: Sequence[Worker], load: Load) -> Sample:
    """Have all workers carry out their share of a load at the same time, and add up what they say."""
    busy = [(worker, k) for worker, k in zip(workers, spread(load.k, len(workers)), strict=True) if k]
    for worker, k in busy:
        worker.send(Load(k, load.seconds))
    return merge([worker.receive(Sample) for worker, _ in busy])


def merge(samples: Sequence[Sample]) -> Sample:
    """Add up samples of processes that worked at the same time."""
    return Sample(
        count=sum(each.count for each in samples),
        elapsed_s=max(each.elapsed_s for each in samples),
        latencies_ms=[latency for each in samples for latency in each.latencies_ms],
        lost=sum(each.lost for each in samples),
        doubled=sum(each.doubled for each in samples),
        foreign=sum(each.foreign for each in samples),
    )
