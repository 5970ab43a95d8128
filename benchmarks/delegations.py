"""Structured delegations through a real host, so many at a time, beside process pools that do the same work.

A delegation is a process of its own for a task, with a record, a schema that its value is checked by, and one answer
over the broker. A pool of two processes has none of these; beside it stands one that starts a process for each task.
lost: attempts without their one right answer; doubled: answers of the topic beyond the first.
"""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import importlib
import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

import pisub
from benchmarks.chaos_runs import end_daemons
from benchmarks.delegations_work import work
from benchmarks.harness import Report, Row, machine, percentile
from pisub.agents.trust import trust
from pisub.client.bus import Incoming
from pisub.config import Settings
from pisub.protocol.delegation import SUBAGENT_DELEGATION_RESPONSE_EVENT, DelegationResponse
from pisub.testing import ScriptedHuman

_SESSION: Final = "bench-delegations"
_SCHEMA: Final = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
_FRONT: Final = """\
---
name: number
description: Gives the number of its task.
runner: {type: python, target: "number_agent:number"}
---
"""
_AGENT: Final = """
def number(child):
    child.structured_output({"n": int(child.task)})
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare this benchmark's arguments."""
    parser.add_argument("--count", type=int, default=1_000, help="delegations (default 1000)")
    parser.add_argument("--k", type=int, default=64, help="how many at a time (default 64)")


def run(args: argparse.Namespace) -> Report:
    """Measure each once: the numbers of a thousand tasks need no rounds."""
    ours = _delegations(args.count, args.k)
    rivals, skipped = _rivals(args.count, args.k)
    rows = [
        msgspec.structs.replace(ours, ratio=round(ours.per_s / each.per_s, 4), against=each.case) for each in rivals
    ]
    return Report(benchmark="delegations", machine=machine(), rows=[*(rows or [ours]), *rivals], skipped=skipped)


def _delegations(count: int, k: int) -> Row:
    with tempfile.TemporaryDirectory(prefix="psb-") as base:
        settings = Settings(
            home=Path(base, "home"), runtime_dir=Path(base, "run"), fsync=False, max_spawns_per_session=count + 1
        )
        project = Path(base, "project")
        (project / ".pisub" / "agents").mkdir(parents=True)
        (project / ".pisub" / "agents" / "number.md").write_text(_FRONT, encoding="utf-8")
        (project / "number_agent.py").write_text(_AGENT, encoding="utf-8")
        trust(settings, project)
        try:
            return asyncio.run(_delegate(settings, project, count, k))
        finally:
            end_daemons(settings)


async def _delegate(settings: Settings, project: Path, count: int, k: int) -> Row:
    answered: Counter[str] = Counter()
    latencies: list[float] = []
    wrong = 0
    turns = asyncio.Semaphore(k)

    def take(came: Incoming) -> None:
        answered[came.decode(DelegationResponse).request_id] += 1

    async with (
        pisub.host(_SESSION, ScriptedHuman(), settings=settings),
        pisub.connect(_SESSION, settings=settings) as client,
    ):
        await client.bus.subscribe(SUBAGENT_DELEGATION_RESPONSE_EVENT, take, scope=_SESSION)

        async def one(number: int) -> None:
            nonlocal wrong
            async with turns:
                began = time.perf_counter()
                answer = await client.delegate("number", str(number), project, schema=_SCHEMA, request_id=f"r{number}")
                latencies.append((time.perf_counter() - began) * 1000)
            wrong += answer.status != "completed" or answer.value != {"n": number}

        await one(0)  # broker and nursery are up
        answered.clear()
        latencies.clear()
        began = time.perf_counter()
        await asyncio.gather(*(one(number) for number in range(1, count + 1)))
        elapsed_s = time.perf_counter() - began
        await client.bus.flush(1.0)
    doubled = sum(each - 1 for each in answered.values())
    return _row("pisub delegation", k, count, elapsed_s, latencies, lost=wrong, doubled=doubled)


def _rivals(count: int, k: int) -> tuple[list[Row], list[str]]:
    context = multiprocessing.get_context("forkserver")
    pools: dict[str, Callable[[], Any]] = {
        "concurrent.futures, 2 processes": lambda: concurrent.futures.ProcessPoolExecutor(2, mp_context=context),
        "concurrent.futures, a process a task": lambda: concurrent.futures.ProcessPoolExecutor(
            min(k, 61), mp_context=context, max_tasks_per_child=1
        ),
        "loky, 2 processes": lambda: importlib.import_module("loky").ProcessPoolExecutor(2),
    }
    rows: list[Row] = []
    skipped: list[str] = []
    for case, make in pools.items():
        try:
            pool = make()
        except ModuleNotFoundError as error:
            skipped.append(f"{case} (the package {error.name} is not installed)")
            continue
        with pool:
            pool.submit(work, "0").result()
            rows.append(asyncio.run(_pooled(pool, case, count, k)))
    return rows, skipped


async def _pooled(pool: Any, case: str, count: int, k: int) -> Row:
    latencies: list[float] = []
    turns = asyncio.Semaphore(k)
    wrong = 0

    async def one(number: int) -> None:
        nonlocal wrong
        async with turns:
            began = time.perf_counter()
            value, _ = await asyncio.wrap_future(pool.submit(work, str(number)))
            latencies.append((time.perf_counter() - began) * 1000)
        wrong += msgspec.json.decode(value) != {"n": number}

    began = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(1, count + 1)))
    return _row(case, k, count, time.perf_counter() - began, latencies, lost=wrong, doubled=0)


def _row(case: str, k: int, count: int, elapsed_s: float, latencies: list[float], *, lost: int, doubled: int) -> Row:
    return Row(
        case=case,
        k=k,
        per_s=round(count / elapsed_s, 1),
        p50_ms=round(percentile(latencies, 0.5), 3),
        p99_ms=round(percentile(latencies, 0.99), 3),
        lost=lost,
        doubled=doubled,
    )
