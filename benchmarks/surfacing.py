"""How soon a child's question is before the human, whatever the program that started it is doing meanwhile.

Real processes: a host session, a broker, and a run for each question. A child puts the moment into its question; the
host's dialog compares it with the moment at which it is shown. Both clocks are the machine's own monotonic one. No
rival: the bound is a second.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import pisub
from benchmarks.chaos_runs import end_daemons
from benchmarks.harness import Report, Row, machine, percentile
from pisub.agents.trust import trust
from pisub.config import Settings

_FRONT: Final = """\
---
name: punctual
description: Asks what time it is.
runner:
  type: python
  target: punctual_agent:punctual
---
"""
_AGENT: Final = """
import asyncio, time


async def punctual(child):
    await asyncio.sleep(0.05)  # the parent has come to do what it does
    return (await child.ask(str(time.monotonic_ns()))).status
"""

Parent = Callable[[pisub.Host, pisub.Run], Awaitable[object]]


async def _foreground_call(_host: pisub.Host, run: pisub.Run) -> None:
    await run.text()


async def _wait(host: pisub.Host, run: pisub.Run) -> None:
    await host.client.wait(run.id)


async def _wait_all(host: pisub.Host, _run: pisub.Run) -> None:
    await host.client.wait(is_all=True)


async def _idle(_host: pisub.Host, _run: pisub.Run) -> None:
    await asyncio.Event().wait()


async def _headless(host: pisub.Host, _run: pisub.Run) -> None:
    await host.client.wait_until_idle()


#: What the program that started the child does while it asks.
MODES: Final[Mapping[str, Parent]] = {
    "foreground call": _foreground_call,
    "wait": _wait,
    "wait all": _wait_all,
    "idle": _idle,
    "headless": _headless,
}


class Timekeeper:
    """The human: notes how old each question is when it is shown, and answers."""

    def __init__(self) -> None:
        self.ages_ms: list[float] = []

    async def select(self, title: str, options: Sequence[str], context: pisub.DialogContext) -> str | None:  # noqa: ARG002
        """No question here has options."""
        raise AssertionError(title)

    async def input(self, title: str, placeholder: str, context: pisub.DialogContext) -> str | None:  # noqa: ARG002
        """Answer at once."""
        self.ages_ms.append((time.monotonic_ns() - int(title)) / 1e6)
        return "now"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare this benchmark's arguments."""
    parser.add_argument("--questions", type=int, default=50, help="in each mode of the parent (default 50)")


def run(args: argparse.Namespace) -> Report:
    """Measure each mode in turn, question after question."""
    with tempfile.TemporaryDirectory(prefix="psb-") as base:
        settings = Settings(home=Path(base, "home"), runtime_dir=Path(base, "run"), fsync=False)
        project = Path(base, "project")
        (project / ".pisub" / "agents").mkdir(parents=True)
        (project / ".pisub" / "agents" / "punctual.md").write_text(_FRONT, encoding="utf-8")
        (project / "punctual_agent.py").write_text(_AGENT, encoding="utf-8")
        trust(settings, project)
        try:
            rows = asyncio.run(_measure(settings, project, args.questions))
        finally:
            end_daemons(settings)
    return Report(benchmark="surfacing", machine=machine(), rows=rows)


async def _measure(settings: Settings, project: Path, questions: int) -> list[Row]:
    ages: dict[str, list[float]] = {mode: [] for mode in MODES}
    human = Timekeeper()
    async with pisub.host("surfacing", human, settings=settings) as host:
        for _ in range(questions):
            for mode, parent in MODES.items():
                run = await host.spawn("punctual", "x", project, attached=mode == "foreground call")
                waiting = asyncio.ensure_future(parent(host, run))
                await run.result()
                waiting.cancel()
                await asyncio.wait({waiting})
                ages[mode] += human.ages_ms
                human.ages_ms.clear()
    return [_row(mode, found, questions) for mode, found in ages.items()]


def _row(mode: str, ages_ms: list[float], questions: int) -> Row:
    return Row(
        case=f"pisub, {mode}",
        k=1,
        per_s=0.0,
        p50_ms=percentile(ages_ms, 0.5),
        p99_ms=percentile(ages_ms, 0.99),
        lost=questions - len(ages_ms),
        doubled=0,
        extra={"max ms": max(ages_ms, default=0.0), "over 1 s": float(sum(age > 1000 for age in ages_ms))},
    )
