"""Runs under random kills of runners, hosts, nurseries and brokers: what was lost, what was doubled, how they ended."""

from __future__ import annotations

import asyncio
import os
import random
import select
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

import pisub
from benchmarks.harness import environment_of, machine
from pisub.client.spawn import record_launch_error
from pisub.config import Settings, caller_environment
from pisub.errors import PisubError
from pisub.ids import new_id
from pisub.launch import ensure_broker, find_broker
from pisub.launchers.local import LocalLauncher
from pisub.launchers.nursery import nurseries
from pisub.paths import runtime_dir
from pisub.process import ProcessIdentity, open_pidfd, own_identity, send_signal
from pisub.record.atomic import exists, read_record
from pisub.record.layout import Layout
from pisub.record.model import Started
from pisub.record.results import read_result
from pisub.record.sessions import Delivery
from pisub.record.submit import submit_run
from pisub.runs.spec import AgentSnapshot, LaunchMessage, RunnerSpec, RunSpec
from pisub.testing import ScriptedHuman

_ROOT: Final = Path(__file__).resolve().parents[1]
_SESSION: Final = "chaos"
_AT_ONCE: Final = 12
#: One kill of each kind in so many launches, on average.
_KILL_EVERY: Final = {"runner": 4, "host": 30, "nursery": 40, "broker": 40}
#: An end that has not come in this time, while no other came either, is lost.
_HANG_S: Final = 90.0
_SAY_EVERY: Final = 500
_AGENT: Final = """
import asyncio, random

async def main(child):
    for number in range(3):
        child.log(f"part {number}")
        await asyncio.sleep(random.uniform(0.0, 0.08))
    child.write("part.txt", "whole")
    return "done"

async def wait(child):
    child.log("waits")
    await asyncio.sleep(600)
"""


class RunsTold(msgspec.Struct, kw_only=True):
    """What is printed.

    Attributes:
        lost: Runs without an end, or whose end no handler was called with, or that the ledger does not call done.
        doubled: Ends that handlers were called with twice without the flag, and runs with two ends.
        redelivered: Calls with the flag: allowed, and said.
        ends: How many ended how.
        kills: How many of each kind.
        death_to_completion_ms: Median from the SIGKILL of a runner to its host's handler.
    """

    benchmark: str = "chaos runs"
    machine: str = ""
    runs: int
    seed: int
    seconds: float = 0.0
    lost: int = 0
    doubled: int = 0
    redelivered: int = 0
    ends: dict[str, int] = {}
    kills: dict[str, int] = {}
    death_to_completion_ms: float | None = None

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost and nothing doubled."""
        return not (self.lost or self.doubled)


class Chaos:
    """One session with its runs, and who is killed around them."""

    def __init__(
        self, settings: Settings, base: Path, *, runs: int, seed: int, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self._say = say
        self._settings = settings
        self._layout = Layout.of(settings)
        self._layout.prepare()
        self._launcher = LocalLauncher(settings)
        self._agent = base / "agent.py"
        self._agent.write_text(_AGENT)
        self._log = base / "handled"
        self._log.touch()
        self._random = random.Random(seed)
        self._host: subprocess.Popen[bytes] | None = None
        self._kills: Counter[str] = Counter()
        self._runs: list[str] = []
        #: Those that have no result yet, oldest first, and those whose end the ledger does not call done.
        self._going_on: list[str] = []
        self._undone: list[str] = []
        self.told = RunsTold(runs=runs, seed=seed, machine=machine())

    def carry_out(self) -> RunsTold:
        """Run and kill until all runs have ended, then count."""
        begin = time.monotonic()
        ensure_broker(self._settings)
        self._start_host()
        try:
            while len(self._runs) < self.told.runs or self._going_on:
                self._advance()
            self._undone = self._runs
            self._wait_until_done()
        finally:
            self._end_host()
        self.told.seconds = round(time.monotonic() - begin, 1)
        self._count()
        return self.told

    def _advance(self) -> None:
        if self._host is not None and self._host.poll() is not None:
            self._start_host()  # it could not bear the broker's death
        self._going_on = [each for each in self._going_on if not exists(self._layout.run(each).result)]
        if len(self._runs) == self.told.runs or len(self._going_on) >= _AT_ONCE:
            time.sleep(0.005)
            return
        run_id = self._launch()
        self._runs.append(run_id)
        self._going_on.append(run_id)
        if len(self._runs) % _SAY_EVERY == 0:
            self._say(f"{len(self._runs)} of {self.told.runs} runs started, {sum(self._kills.values())} kills")
        for kind, every in _KILL_EVERY.items():
            if self._random.random() < 1 / every:
                self._kill(kind, self._going_on)

    def _wait_until_done(self) -> None:
        """Wait for the handler to have had every end, for as long as more of them come."""
        left, end = len(self._undone), time.monotonic() + _HANG_S
        while self._undone and time.monotonic() < end:
            time.sleep(0.05)
            self._undone = [each for each in self._undone if not self._is_done(each)]
            if len(self._undone) < left:
                left, end = len(self._undone), time.monotonic() + _HANG_S

    def _is_done(self, run_id: str) -> bool:
        result = read_result(self._layout.run(run_id))
        return result is not None and exists(self._layout.session(_SESSION).done / f"{run_id}.{result.state}")

    def _launch(self) -> str:
        spec = _spec(self._agent, "main")
        submit_run(self._layout, spec)
        try:
            self._launcher.launch_blocking(_message(self._settings, spec))
        except (PisubError, OSError) as error:
            record_launch_error(self._layout, spec.run_id, error)
        return spec.run_id

    def _kill(self, kind: str, going_on: list[str]) -> None:
        """Send SIGKILL to one process of a kind, where there is one."""
        if kind == "host":
            self._end_host()
            self._start_host()
            self._kills[kind] += 1
            return
        broker = find_broker(self._settings)
        found: dict[str, list[ProcessIdentity]] = {
            "runner": [each for run_id in going_on if (each := self._runner_of(run_id)) is not None],
            "nursery": list(nurseries(runtime_dir(self._settings))),
            "broker": [] if broker is None else [broker.process],
        }
        if found[kind]:
            self._kills[kind] += send_signal(self._random.choice(found[kind]), signal.SIGKILL)

    def _runner_of(self, run_id: str) -> ProcessIdentity | None:
        started = read_record(self._layout.run(run_id).started, Started)
        return None if started is None else started.process

    def _start_host(self) -> None:
        environ = {**caller_environment(), **environment_of(self._settings)}
        command = [sys.executable, "-m", "benchmarks.chaos_host", _SESSION, str(self._log)]
        self._host = subprocess.Popen(command, cwd=_ROOT, env=environ, stdin=subprocess.DEVNULL)

    def _end_host(self) -> None:
        if self._host is not None:
            self._host.kill()
            self._host.wait()

    def _count(self) -> None:
        told = self.told
        calls: Counter[tuple[str, bool]] = Counter()
        for line in self._log.read_text().splitlines():
            key, flag = line.split(" ")
            calls[key, flag == "1"] += 1
        keys_of: dict[str, set[str]] = {}
        for key, _ in calls:
            keys_of.setdefault(key.partition(":")[0], set()).add(key)
        ends: Counter[str] = Counter()
        undone = set(self._undone)
        for run_id in self._runs:
            result = read_result(self._layout.run(run_id))
            keys = keys_of.get(run_id, set())
            told.lost += result is None or keys != {f"{run_id}:{result.state}"} or run_id in undone
            told.doubled += len(keys) > 1
            if result is not None:
                ends[result.state.value + (f", {result.reason}" if result.reason else "")] += 1
        told.doubled += sum(count > 1 for (_, flag), count in calls.items() if not flag)
        told.redelivered = sum(count for (_, flag), count in calls.items() if flag)
        told.ends, told.kills = dict(ends.most_common()), dict(self._kills)


async def measure_deaths(settings: Settings, base: Path, *, count: int) -> float:
    """Kill so many runners, one after the other; return the median time in ms until the host's handler was called."""
    agent = base / "agent.py"
    agent.write_text(_AGENT)
    layout = Layout.of(settings)
    launcher = LocalLauncher(settings)
    arrived: asyncio.Queue[tuple[str, float]] = asyncio.Queue()

    def note(delivery: Delivery) -> None:
        arrived.put_nowait((delivery.completion.run_id, time.monotonic()))

    times: list[float] = []
    async with pisub.host("deaths", ScriptedHuman([]), note, settings=settings) as host:
        for _ in range(count):
            spec = msgspec.structs.replace(_spec(agent, "wait"), session_id="deaths")
            submit_run(layout, spec)
            await launcher.launch(_message(settings, spec))
            run = host.run(spec.run_id)
            async for event in run.events():
                if event.data.get("text") == "waits":
                    break
            process = await run.process()
            assert process is not None
            killed_at = time.monotonic()
            send_signal(process, signal.SIGKILL)
            run_id, at = await arrived.get()
            assert run_id == spec.run_id
            times.append((at - killed_at) * 1000)
    return round(statistics.median(times), 1)


def end_daemons(settings: Settings) -> None:
    """End the broker and the nurseries, and wait until they have."""
    broker = find_broker(settings)
    for identity in [*nurseries(runtime_dir(settings)), *([] if broker is None else [broker.process])]:
        descriptor = open_pidfd(identity)
        if descriptor is not None:
            send_signal(identity, signal.SIGTERM)
            select.select([descriptor], [], [], 10.0)
            os.close(descriptor)


def _spec(agent: Path, function: str) -> RunSpec:
    return RunSpec(
        run_id=new_id(),
        session_id=_SESSION,
        agent=AgentSnapshot(name="chaos", runner=RunnerSpec(type="python", target=f"{agent}:{function}")),
        task="a task",
        cwd=str(agent.parent),
        submitter=own_identity(),
        submitted_at=time.time_ns() // 1_000_000,
    )


def _message(settings: Settings, spec: RunSpec) -> LaunchMessage:
    return LaunchMessage(
        run_id=spec.run_id,
        home=str(settings.home),
        runtime_dir=str(settings.runtime_dir),
        environ=caller_environment(),
        cwd=spec.cwd,
    )
