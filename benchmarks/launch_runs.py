"""The launch benchmark's own runs: started as any client starts one, heard of by the messages that any client hears."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import Final, Self, TypeVar

import psutil

from benchmarks.harness import Sample, percentile
from pisub.client.bus import Bus, Incoming
from pisub.config import Settings, caller_environment
from pisub.ids import new_id
from pisub.launchers.base import Launched
from pisub.launchers.local import LocalLauncher
from pisub.process import own_identity, send_signal
from pisub.protocol.codec import decode
from pisub.protocol.runs import ASYNC_COMPLETE_TOPIC, ASYNC_STARTED_TOPIC, AsyncComplete, AsyncStarted
from pisub.protocol.session import PeerKind
from pisub.record.layout import Layout
from pisub.record.submit import submit_run
from pisub.runs.spec import AgentSnapshot, LaunchMessage, RunnerSpec, RunSpec

T = TypeVar("T")

_SESSION: Final = "bench-launch"
_HANG_S: Final = 60.0
_AGENTS: Final = Path(__file__).with_name("launch_agent.py")
#: So many idle runners are started at a time.
_AT_ONCE: Final = 4


class _Launched:
    """A run between its request and its end."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.started_at: asyncio.Future[float] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()


class Launches:
    """Runs by one way of launching. Enter it with a broker up: it listens there."""

    def __init__(self, case: str, settings: Settings) -> None:
        self.case = case
        self._launcher = LocalLauncher(settings)
        self._settings = settings
        self._layout = Layout.of(settings)
        self._layout.prepare()
        self._runner = asyncio.Runner()
        self._runs: dict[str, _Launched] = {}

    def __enter__(self) -> Self:
        self._bus = self._runner.run(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._bus.close())
        self._runner.close()

    def measure(self, k: int, seconds: float) -> Sample:
        """Launch for so long, ``k`` at a time; each lane waits for its run's end before the next."""
        return self._runner.run(self._measure(k, seconds))

    def idle_pss_mb(self, count: int) -> list[float]:
        """Start so many runs whose agent waits, and return the memory of each runner while all wait."""
        return self._runner.run(self._idle_pss_mb(count))

    async def _listen(self) -> Bus:
        bus = await Bus.connect(self._settings, kind=PeerKind.CLIENT, session=_SESSION, start_broker=False)
        await bus.subscribe(ASYNC_STARTED_TOPIC, self._note_start, scope=_SESSION)
        await bus.subscribe(ASYNC_COMPLETE_TOPIC, self._note_end, scope=_SESSION)
        return bus

    def _note_start(self, incoming: Incoming) -> None:
        run = self._runs.get(decode(incoming.body, AsyncStarted).run_id)
        if run is not None and not run.started_at.done():
            run.started_at.set_result(time.monotonic())

    def _note_end(self, incoming: Incoming) -> None:
        run = self._runs.get(decode(incoming.body, AsyncComplete).run_id)
        if run is not None and not run.ended.done():
            run.ended.set_result(None)

    async def _measure(self, k: int, seconds: float) -> Sample:
        latencies: list[float] = []
        launch_calls: list[float] = []
        begin = time.monotonic()

        async def lane() -> None:
            while time.monotonic() - begin < seconds or not latencies:
                # The end of a run that has ended by then is written before its first message is sent.
                message = self._submit("steady" if k == 1 else "brief")
                asked_at = time.monotonic()
                run = self._runs[message.run_id] = _Launched()
                await self._launcher.launch(message)
                launch_calls.append((time.monotonic() - asked_at) * 1000)
                async with asyncio.timeout(_HANG_S):
                    latencies.append((await run.started_at - asked_at) * 1000)
                    await run.ended
                del self._runs[message.run_id]

        await asyncio.gather(*(lane() for _ in range(k)))
        elapsed = sum(latencies) / 1000 if k == 1 else time.monotonic() - begin
        return Sample(
            count=len(latencies),
            elapsed_s=elapsed,
            latencies_ms=latencies,
            extra={"process exists p50 ms": percentile(launch_calls, 0.5)},
        )

    async def _idle_pss_mb(self, count: int) -> list[float]:
        turns = asyncio.Semaphore(_AT_ONCE)

        async def start() -> tuple[Launched, _Launched]:
            message = self._submit("idle")
            run = self._runs[message.run_id] = _Launched()
            async with turns, asyncio.timeout(_HANG_S):
                launched = await self._launcher.launch(message)
                await run.started_at
            return launched, run

        runs = await asyncio.gather(*(start() for _ in range(count)))
        pids = [launched.process.pid for launched, _ in runs]
        try:
            return [psutil.Process(pid).memory_full_info().pss / 1e6 for pid in pids]
        finally:
            for launched, _ in runs:
                send_signal(launched.process, signal.SIGTERM)
            async with asyncio.timeout(_HANG_S):
                await asyncio.gather(*(run.ended for _, run in runs))

    def _submit(self, agent: str) -> LaunchMessage:
        spec = RunSpec(
            run_id=new_id(),
            session_id=_SESSION,
            agent=AgentSnapshot(name=agent, runner=RunnerSpec(type="python", target=f"{_AGENTS}:{agent}")),
            task="",
            cwd=str(_AGENTS.parent),
            submitter=own_identity(),
            submitted_at=time.time_ns() // 1_000_000,
        )
        submit_run(self._layout, spec)
        return LaunchMessage(
            run_id=spec.run_id,
            home=str(self._settings.home),
            runtime_dir=str(self._settings.runtime_dir),
            environ=caller_environment(),
            cwd=spec.cwd,
        )
