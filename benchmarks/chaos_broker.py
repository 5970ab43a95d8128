"""kill -9 of the broker under open calls and asking runs: what became of every call, deed, question and name."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import random
import signal
import textwrap
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Final

import msgspec

import pisub
from benchmarks.chaos_parts import connected, end_process, worker
from benchmarks.chaos_worker import DOER, LISTENER, ROLE, TOPIC, Came, Did, Do, News, WhatCame
from benchmarks.harness import machine
from pisub.agents.trust import trust
from pisub.client.bus import Bus
from pisub.client.runs import Run
from pisub.config import Settings
from pisub.errors import CallTimeoutError, NotDeliveredError, OutcomeUnknownError
from pisub.launch import BROKER_LOCK, ensure_broker, find_broker
from pisub.paths import runtime_dir
from pisub.protocol.delivery import Priority
from pisub.protocol.session import Status, StatusReport

#: A call that has no outcome by then is lost.
_LOST_AFTER_S: Final = 120.0
_AGENT = '''
import asyncio
from pisub import Question


async def curious(child):
    """Ask one question after the other until told to end; say how many, and which answers were another's."""
    number, wrong = 0, []
    while not (child.cwd / "enough").exists():
        text = f"{child.run_id}:{number}"
        result = await child.ask([Question(text)])
        if not result.is_ok or result[0] != f"answer to {text}":
            wrong.append(f"{text}: {result.status} {result.values} {result.reason}")
        number += 1
        await asyncio.sleep(0.02)
    return f"{number} {wrong}"
'''


class Told(msgspec.Struct, kw_only=True):
    """What is printed of ``broker``."""

    benchmark: str = "chaos broker"
    machine: str = ""
    kills: int = 0
    calls: int = 0
    answered: int = 0
    #: Ended as not delivered, or as unknown: allowed, and said.
    not_delivered: int = 0
    unknown: int = 0
    #: Calls without any outcome; must be 0.
    lost: int = 0
    #: Deeds done twice, deeds of calls that were "not delivered", answers without a deed; must be 0.
    doubled: int = 0
    forged: int = 0
    runs: int = 0
    questions: int = 0
    #: Questions without their own answer, or shown twice, and runs that did not complete; must be 0.
    questions_lost: int = 0
    questions_doubled: int = 0
    runs_lost: int = 0
    #: Names, roles and subscriptions that were not back after a kill; must be 0.
    not_back: int = 0
    #: From the kill to the first call that was made after it and answered.
    back_after_ms: list[int] = []
    examples: list[str] = []

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost and nothing doubled."""
        lost = self.lost + self.questions_lost + self.runs_lost + self.not_back
        return not (lost or self.doubled or self.forged or self.questions_doubled)


async def killed(settings: Settings, pauses: Sequence[float], *, calls: int, runs: int, seed: int) -> Told:
    """Kill the broker once per pause, which is how long none can serve, and count what became of everything."""
    told = Told(machine=machine(), kills=len(pauses))
    dice = random.Random(seed)
    assert settings.home is not None
    base = settings.home.parent
    deeds = base / "deeds"
    with worker(settings, "doer", str(deeds)), worker(settings, "listener"):
        async with _askers(settings, base / "project", runs, told), connected(settings) as bus:
            lanes = _Lanes(bus, told)
            lanes.begin(calls)
            for number, pause_s in enumerate(pauses, 1):
                await asyncio.sleep(0.05 + dice.random() * 0.4)
                before = await _names(bus)
                began = time.monotonic()
                await asyncio.to_thread(_kill, settings, pause_s)
                await _first_answer(bus, number)
                told.back_after_ms.append(round((time.monotonic() - began - pause_s) * 1000))
                await _see_all_back(bus, before, number, told)
            await lanes.end()
    _count_deeds(deeds.read_text().split(), lanes, told)
    return told


async def _first_answer(bus: Bus, number: int) -> None:
    while True:
        try:
            await bus.call(DOER, Do(key=f"back:{number}"), Did, timeout_s=_LOST_AFTER_S, idempotent=True)
        except (NotDeliveredError, OutcomeUnknownError):  # the doer is not back yet
            await asyncio.sleep(0.02)
        else:
            return


def _kill(settings: Settings, pause_s: float) -> None:
    """Kill the broker. Whoever starts another finds the lock taken for as long as the pause."""
    info = find_broker(settings)
    assert info is not None
    end_process(info.process, signal.SIGKILL)
    if not pause_s:
        ensure_broker(settings)
        return
    descriptor = os.open(runtime_dir(settings) / BROKER_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(BlockingIOError):  # somebody was faster: then there is no pause
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            time.sleep(pause_s)
    finally:
        os.close(descriptor)


class _Lanes:
    """Calls one after the other on many lanes, every second one to the role, and what became of each."""

    def __init__(self, bus: Bus, told: Told) -> None:
        self.outcomes: dict[str, str] = {}
        self._bus = bus
        self._told = told
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, count: int) -> None:
        self._tasks = [asyncio.create_task(self._lane(number)) for number in range(count)]

    async def end(self) -> None:
        self._is_over = True
        done, pending = await asyncio.wait(self._tasks, timeout=_LOST_AFTER_S)
        for task in pending:
            task.cancel()
        for task in done:
            task.result()
        self._told.lost += len(pending)

    async def _lane(self, lane: int) -> None:
        number = 0
        while not self._is_over:
            key = f"{lane}:{number}"
            number += 1
            self._told.calls += 1
            self.outcomes[key] = await self._one(key, lane)

    async def _one(self, key: str, lane: int) -> str:
        told = self._told
        to, is_idempotent = ("role:" + ROLE, DOER)[lane % 2], lane % 4 < 2
        try:
            did = await self._bus.call(to, Do(key=key), Did, timeout_s=_LOST_AFTER_S, idempotent=is_idempotent)
        except CallTimeoutError:
            told.lost += 1
            return "lost"
        except OutcomeUnknownError:
            told.unknown += 1
            return "unknown"
        except NotDeliveredError:
            told.not_delivered += 1
            await asyncio.sleep(0.02)
            return "not delivered"
        told.answered += 1
        if did.key != key:
            told.forged += 1
            told.examples.append(f"{key} got the answer of {did.key}")
        return "answered"


def _count_deeds(done: list[str], lanes: _Lanes, told: Told) -> None:
    times = Counter(key for key in done if not key.startswith("back"))
    for key, count in times.items():
        if count > 1 or lanes.outcomes.get(key) == "not delivered":
            told.doubled += 1
            told.examples.append(f"{key} was done {count} times, and its call was {lanes.outcomes.get(key)}")
    for key, outcome in lanes.outcomes.items():
        if outcome == "answered" and not times[key]:
            told.forged += 1
            told.examples.append(f"{key} was answered and never done")


async def _names(bus: Bus) -> tuple[set[str], set[tuple[str, str, str]]]:
    report = await bus.control(Status(), StatusReport, timeout_s=_LOST_AFTER_S)
    names = {each.address for each in report.peers if each.is_connected}
    return names, {(each.role, each.scope, each.address) for each in report.roles}


async def _see_all_back(bus: Bus, before: tuple[set[str], set[tuple[str, str, str]]], number: int, told: Told) -> None:
    end = time.monotonic() + 20.0
    missing: list[object] = ["nothing was looked at"]
    while missing and time.monotonic() < end:
        await asyncio.sleep(0.05)
        names, roles = await _names(bus)
        bus.publish(TOPIC, News(number=number), priority=Priority.TERMINAL)
        try:
            came = await bus.call(LISTENER, WhatCame(), Came, timeout_s=_LOST_AFTER_S, idempotent=True)
        except (NotDeliveredError, OutcomeUnknownError):
            missing = [LISTENER]
            continue
        missing = [*(before[0] - names), *(before[1] - roles)]
        if number not in came.numbers:
            missing.append(f"the subscription to {TOPIC}")
    if missing:
        told.not_back += len(missing)
        told.examples.append(f"after kill {number} these were not back: {missing}")


class _Human:
    """Answers every question with its own text, and counts how often each was shown."""

    def __init__(self) -> None:
        self.shown: Counter[str] = Counter()

    async def select(self, title: str, options: Sequence[str], context: pisub.DialogContext) -> str | None:  # noqa: ARG002  # the protocol's shape
        return await self.input(title, "", context)

    async def input(self, title: str, placeholder: str, context: pisub.DialogContext) -> str | None:  # noqa: ARG002  # the protocol's shape
        self.shown[title] += 1
        return f"answer to {title}"


@contextlib.asynccontextmanager
async def _askers(settings: Settings, project: Path, count: int, told: Told) -> AsyncGenerator[None]:
    """Run agents that ask all the while; afterwards count what became of their questions."""
    _make_project(settings, project)
    human = _Human()
    async with pisub.host("chaos", human, settings=settings) as host:
        started = [await host.spawn("curious", "be curious", project) for _ in range(count)]
        told.runs = count
        try:
            yield
        finally:
            (project / "enough").touch()
            results = await asyncio.gather(*map(_text, started))
    for run_, text in zip(started, results, strict=True):
        number, _, wrong = (text or "").partition(" ")
        if not number.isdecimal():
            told.runs_lost += 1
            told.examples.append(f"run {run_.id} ended with {text!r}")
            continue
        told.questions += int(number)
        if wrong != "[]":
            told.questions_lost += wrong.count(run_.id)
            told.examples.append(wrong)
    doubled = [title for title, times in human.shown.items() if times > 1]
    told.questions_doubled += len(doubled)
    told.examples += [f"the question {title} was shown {human.shown[title]} times" for title in doubled]


async def _text(started: Run) -> str:
    result = await started.result(timeout_s=_LOST_AFTER_S)
    return result.output or f"{result.state}: {result.error}"


def _make_project(settings: Settings, root: Path) -> None:
    agents = root / ".pisub" / "agents"
    agents.mkdir(parents=True)
    (root / "chaos_agents.py").write_text(_AGENT)
    front = """\
        ---
        name: curious
        description: Asks and asks.
        runner:
          type: python
          target: chaos_agents:curious
        ---
        """
    (agents / "curious.md").write_text(textwrap.dedent(front))
    trust(settings, root)
