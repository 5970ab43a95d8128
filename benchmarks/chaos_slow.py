"""A subscriber is stopped while it gets droppable news: what that costs the others, as a ratio of their p99."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.chaos_parts import connected, worker
from benchmarks.chaos_worker import LISTENER, TOPIC, Came, News, WhatCame
from benchmarks.harness import machine
from pisub.client.bus import Bus
from pisub.config import Settings
from pisub.launch import find_broker
from pisub.protocol.delivery import Priority
from pisub.protocol.session import Status, StatusReport

#: A percentile needs some, also where the publishing is over at once.
_LEAST_SAMPLES: Final = 10


class Compared(msgspec.Struct, kw_only=True):
    """What is printed of ``slow``."""

    benchmark: str = "chaos slow"
    machine: str = ""
    rounds: int
    updates: int
    p99_ms_reading: float
    p99_ms_stopped: float
    ratio: float
    terminal_lost: int
    unaccounted: int
    broker_growth_kib: int


async def stopped_subscriber(settings: Settings, *, rounds: int, updates: int) -> Compared:
    """Publish to a subscriber that reads and to one that is stopped, in turn, and compare the others' round trips."""
    assert settings.home is not None
    deeds = settings.home.parent / "deeds"
    p99: dict[bool, list[float]] = {False: [], True: []}
    published = terminal = 0
    with worker(settings, "doer", str(deeds)), worker(settings, "listener") as listener:
        async with connected(settings) as bus, connected(settings) as publisher:
            before, growth = _memory_kib(settings), 0
            for _ in range(rounds):
                for is_stopped in (False, True):
                    if is_stopped:
                        os.kill(listener.pid, signal.SIGSTOP)
                    terminal += 1
                    work = _publish(publisher, updates, terminal)
                    p99[is_stopped].append(await _others_p99(bus, work))
                    published += updates
                    if is_stopped:
                        growth = max(growth, _memory_kib(settings) - before)
                        os.kill(listener.pid, signal.SIGCONT)
            came = await _when_all_came(bus, publisher, terminal)
    reading, stopped = statistics.median(p99[False]), statistics.median(p99[True])
    return Compared(
        machine=machine(),
        rounds=rounds,
        updates=updates,
        p99_ms_reading=round(reading, 3),
        p99_ms_stopped=round(stopped, 3),
        ratio=round(stopped / reading, 3),
        terminal_lost=terminal - len(set(range(1, terminal + 1)) & set(came.numbers)),
        unaccounted=published - came.others - came.dropped,
        broker_growth_kib=growth,
    )


async def _publish(bus: Bus, updates: int, number: int) -> None:
    payload = "x" * 300
    for count in range(updates):
        bus.publish(TOPIC, News(payload=payload), priority=Priority.DROPPABLE)
        if count % 50 == 0:
            await bus.flush(10.0)
    bus.publish(TOPIC, News(number=number), priority=Priority.TERMINAL)
    await bus.flush(10.0)


async def _others_p99(bus: Bus, work: Awaitable[None]) -> float:
    publishing = asyncio.ensure_future(work)
    latencies: list[float] = []
    while not publishing.done() or len(latencies) < _LEAST_SAMPLES:
        begin = time.perf_counter()
        await bus.control(Status(), StatusReport, timeout_s=30.0)
        latencies.append((time.perf_counter() - begin) * 1000)
        await asyncio.sleep(0.002)
    publishing.result()
    return statistics.quantiles(latencies, n=100)[98]


async def _when_all_came(bus: Bus, publisher: Bus, terminal: int) -> Came:
    end = time.monotonic() + 30.0
    while True:
        publisher.publish(TOPIC, News(number=terminal + 1), priority=Priority.TERMINAL)  # tells of the last gap
        came = await bus.call(LISTENER, WhatCame(), Came, timeout_s=30.0, idempotent=True)
        if terminal in came.numbers or time.monotonic() > end:
            return came
        await asyncio.sleep(0.05)


def _memory_kib(settings: Settings) -> int:
    info = find_broker(settings)
    assert info is not None
    status = Path(f"/proc/{info.process.pid}/status").read_text(encoding="utf-8")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))
