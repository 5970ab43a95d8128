"""Eight children ask batches of three at once, some change their minds, some are killed: whose answers came to whom.

Real processes: a host session, eight runs, a broker. Every question holds a token that no other has, and the human
answers with it. What must be 0: answers that are another's, two dialogs at once, a batch with another's question in it,
asks without their end. No rival: it counts.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

import pisub
from benchmarks.chaos_runs import end_daemons
from benchmarks.harness import machine
from pisub.agents.trust import trust
from pisub.client.runs import Run
from pisub.config import Settings
from pisub.process import send_signal
from pisub.protocol.runs import RunState
from pisub.record.layout import Layout
from pisub.record.questions import list_open_asks

_CHILDREN: Final = 8
_HANG_S: Final = 60.0
#: A child changes its mind in one of so many batches; one is killed in so many of all its answers.
_ABORT_EVERY: Final = 6
_KILL_EVERY: Final = 150
_FRONT: Final = """\
---
name: curious
description: Asks batch after batch.
runner:
  type: python
  target: curious_agent:curious
---
"""
_AGENT: Final = '''
import asyncio, json, random


async def curious(child):
    """Ask so many batches; say what came of them."""
    goal = json.loads(child.task)
    told = {"answered": 0, "aborted": 0, "wrong": 0, "unanswered": 0}
    chance = random.Random(child.run_id)
    for batch in range(goal["first"], goal["batches"]):
        texts = [f"{child.run_id}/{batch}/{number}" for number in range(3)]
        task = asyncio.create_task(child.ask(texts, why=child.run_id, fresh=True))
        if chance.randrange(goal["abortEvery"]) == 0:
            await asyncio.wait({task}, timeout=chance.random() * 0.05)
            if task.cancel():
                await asyncio.wait({task})
                told["aborted"] += 1
                continue
        result = await task
        wanted = [f"answer to {each}" for each in texts]
        got = [value for value in result.values if value is not None]
        told["wrong"] += sum(value not in wanted for value in got) + (result.is_ok and got != wanted)
        told["answered" if result.is_ok else "unanswered"] += 1
        child.log(json.dumps(told))
    return json.dumps(told)
'''


class Told(msgspec.Struct):
    """What a child says after each batch, and in the end."""

    answered: int = 0
    aborted: int = 0
    wrong: int = 0
    unanswered: int = 0


class BridgeReport(msgspec.Struct, kw_only=True):
    """What came of it. All from ``wrong`` on must be 0.

    Attributes:
        batches: Answered ones whose answers the child itself compared; ``aborted`` likewise, those that it took back.
        unseen: Batches that killed children had come to and no longer spoke of: their followers ask only the rest.
    """

    benchmark: str = "bridge"
    machine: str
    batches: int
    dialogs: int
    aborted: int
    killed: int
    unseen: int
    wrong: int
    unanswered: int
    two_dialogs: int
    mixed_batches: int
    left_open: int
    failed_runs: int

    @property
    def faults(self) -> int:
        """How many of what must not be."""
        return self.wrong + self.unanswered + self.two_dialogs + self.mixed_batches + self.left_open + self.failed_runs


class Watcher:
    """The human: answers each question with its own token, and looks whether two are shown, or batches mix."""

    def __init__(self, seed: int) -> None:
        self.dialogs = 0
        self.two_dialogs = 0
        self.mixed_batches = 0
        #: The batch after the last one that was shown, by run.
        self.next_batch: dict[str, int] = {}
        self._open = 0
        self._last: tuple[str, int] = ("", 0)
        self._begun: set[str] = set()
        self._chance = random.Random(seed)

    async def select(self, title: str, options: Sequence[str], context: pisub.DialogContext) -> str | None:  # noqa: ARG002
        """No question here has options."""
        raise AssertionError(title)

    async def input(self, title: str, placeholder: str, context: pisub.DialogContext) -> str | None:  # noqa: ARG002
        """Answer, after a moment."""
        self.dialogs += 1
        self.two_dialogs += self._open > 0
        follows = self._last == (context.ask_id, context.number - 1)
        is_new = context.ask_id not in self._begun
        self.mixed_batches += not (follows or (is_new and context.number == 1)) or not title.startswith(context.run_id)
        self._begun.add(context.ask_id)
        self.next_batch[context.run_id] = int(title.split("/")[1]) + 1
        self._last = (context.ask_id, context.number)
        self._open += 1
        try:
            await asyncio.sleep(self._chance.random() * 0.004)
            return f"answer to {title}"
        finally:
            self._open -= 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare this benchmark's arguments."""
    parser.add_argument("--rounds", type=int, default=1000, help="batches of each of the eight children (default 1000)")
    parser.add_argument("--seed", type=int, default=1, help="of the human's pauses and of the kills (default 1)")


def run(args: argparse.Namespace) -> BridgeReport:
    """Ask, and count."""
    with tempfile.TemporaryDirectory(prefix="psb-") as base:
        settings = Settings(home=Path(base, "home"), runtime_dir=Path(base, "run"), fsync=False)
        project = Path(base, "project")
        (project / ".pisub" / "agents").mkdir(parents=True)
        (project / ".pisub" / "agents" / "curious.md").write_text(_FRONT, encoding="utf-8")
        (project / "curious_agent.py").write_text(_AGENT, encoding="utf-8")
        trust(settings, project)
        try:
            return asyncio.run(_measure(settings, project, args.rounds, args.seed))
        finally:
            end_daemons(settings)


async def _measure(settings: Settings, project: Path, rounds: int, seed: int) -> BridgeReport:
    watcher = Watcher(seed)
    killed: set[str] = set()
    told: list[Told] = []
    failed: list[str] = []
    async with pisub.host("bridge", watcher, settings=settings) as host:

        async def child(first: int) -> int:
            """Have one child ask, and another the rest where it is killed; return how many batches nobody spoke of."""
            run = await host.spawn("curious", _task(first, rounds), project, timeout_ms=0)
            live.append(run)
            result = await run.result()
            live.remove(run)
            if result.state is RunState.COMPLETE:
                told.append(msgspec.json.decode(result.output, type=Told))
                return 0
            if run.id not in killed:
                failed.append(run.id)
                return 0
            last = Told()
            async for event in run.events():
                if event.type == "subagent.child.log":
                    last = msgspec.json.decode(event.data["text"], type=Told)
            told.append(last)
            spoken_of = last.answered + last.aborted + last.unanswered
            # It may have spoken of a batch that it took back before anything of it was shown.
            reached = max(watcher.next_batch.get(run.id, first), first + spoken_of)
            return reached - first - spoken_of + await child(reached)

        live: list[Run] = []
        killer = asyncio.create_task(_kill(live, killed, watcher, seed))
        unseen = sum(await asyncio.gather(*(child(0) for _ in range(_CHILDREN))))
        killer.cancel()
        await asyncio.wait({killer})
        left_open = len(list_open_asks(Layout.of(settings), session_id="bridge"))
    return BridgeReport(
        machine=machine(),
        batches=sum(each.answered for each in told),
        dialogs=watcher.dialogs,
        aborted=sum(each.aborted for each in told),
        killed=len(killed),
        unseen=unseen,
        wrong=sum(each.wrong for each in told),
        unanswered=sum(each.unanswered for each in told),
        two_dialogs=watcher.two_dialogs,
        mixed_batches=watcher.mixed_batches,
        left_open=left_open,
        failed_runs=len(failed),
    )


def _task(first: int, rounds: int) -> str:
    return msgspec.json.encode({"first": first, "batches": rounds, "abortEvery": _ABORT_EVERY}).decode()


async def _kill(live: list[Run], killed: set[str], watcher: Watcher, seed: int) -> None:
    """Kill a random child's runner whenever so many dialogs were shown since the last."""
    chance = random.Random(seed)
    at = _KILL_EVERY
    while True:
        await asyncio.sleep(0.02)
        if watcher.dialogs >= at and live:
            at = watcher.dialogs + _KILL_EVERY
            victim = chance.choice(live)
            process = await victim.process()
            if process is not None:
                killed.add(victim.id)
                send_signal(process, signal.SIGKILL)
