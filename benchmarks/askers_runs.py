"""The processes of ``benchmarks.askers`` that do the real thing: runs that ask, and their session's host.

A run here is its spec and directory in the record, its address at the broker, and the runner's ask service; only the
agent is missing. One process plays many runs, each with a connection of its own, as each runner has.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import zmq

from benchmarks.harness import Sample
from benchmarks.load_lanes import Load, serve_lines_on_loop
from pisub.client.bus import Bus, Incoming, Sender
from pisub.clock import SystemClock
from pisub.config import Settings, load_settings
from pisub.hosting.dialogs import DialogContext
from pisub.hosting.session import HostSession
from pisub.ids import new_id
from pisub.process import own_identity
from pisub.protocol.checkpoint import HOST_READY_TOPIC, AnswerPosted, AskResult, Question
from pisub.protocol.runs import runner_address
from pisub.protocol.session import PeerKind
from pisub.record.layout import Layout
from pisub.record.submit import submit_run
from pisub.runs.spec import AgentSnapshot, RunnerSpec, RunSpec
from pisub.transport.dealer import new_context
from runner.ask_service import AskService
from runner.intake import AskPosted
from runner.link import Link

_SESSION: Final = "bench-runs"
#: Sockets of one process: a dealer and two of its monitor a run.
_MAX_SOCKETS: Final = 16_384
#: An ask without a result after this long is lost; a thousand wait a few seconds for their turn.
_LOST_S: Final = 60.0
#: Every so many runs one asks with so many lanes at once: the others must not wait longer for that.
_GREEDY_EVERY: Final = 10
_GREEDY_LANES: Final = 4
_TICK_S: Final = 0.25


class Ran(msgspec.Struct):
    """What a process of runs has done."""

    sample: Sample
    #: From the human's answer to the run's result, of every ask.
    after_answer_ms: list[float]
    #: Results of each run while all asked.
    served: list[int]


class Looked(msgspec.Struct):
    """What a host has seen since the last time."""

    shown: int
    doubled: int


class OpenLink(Link):
    """A runner's link whose connection is there; all runs of a process share its context."""

    def __init__(self, bus: Bus) -> None:
        self._open_bus = bus

    @property
    def bus(self) -> Bus | None:
        """The connection."""
        return self._open_bus

    @property
    def is_connecting(self) -> bool:
        """It is there."""
        return False


class AskingRun:
    """One run: its record, its connection, its ask service."""

    def __init__(self, spec: RunSpec, layout: Layout, bus: Bus) -> None:
        self.bus = bus
        self._run_id = spec.run_id
        self._numbers = 0
        self.service = AskService(
            layout,
            spec,
            OpenLink(bus),
            process=spec.submitter,
            clock=SystemClock(),
            write_line=lambda _type, _data: None,
            on_waiting=lambda _is_waiting: None,
        )

    @classmethod
    async def start(cls, settings: Settings, layout: Layout, context: zmq.Context[Any]) -> AskingRun:
        """Submit a run, and connect as its runner does."""
        spec = RunSpec(
            run_id=new_id(),
            session_id=_SESSION,
            agent=AgentSnapshot(name="bench", runner=RunnerSpec(type="python", target="bench:agent")),
            task="",
            cwd="/",
            submitter=own_identity(),
            submitted_at=time.time_ns() // 1_000_000,
        )
        submit_run(layout, spec)
        bus = await Bus.connect(
            settings, kind=PeerKind.RUNNER, address=runner_address(spec.run_id), session=_SESSION, context=context
        )
        run = cls(spec, layout, bus)
        bus.on_tell(AnswerPosted, run.note_answer)
        await bus.subscribe(HOST_READY_TOPIC, run.note_host, scope=_SESSION)
        return run

    def note_answer(self, message: AnswerPosted, _sender: Sender) -> None:
        """Somebody says that an answer file was written."""
        self.service.look(message.ask_id)

    def note_host(self, _incoming: Incoming) -> None:
        """A host took the role."""
        self.service.note_host()

    async def ask(self) -> tuple[AskResult | None, bool]:
        """Ask; return the result, or None when there is none, and whether it answers this very question."""
        self._numbers += 1
        number = self._numbers
        token = f"{self._run_id}.{number}"
        future: asyncio.Future[AskResult] = asyncio.get_running_loop().create_future()
        self.service.post(AskPosted(number, (Question(f"What now? [{token}]"),), "", future.set_result))
        try:
            async with asyncio.timeout(_LOST_S):
                result = await asyncio.shield(future)
        except TimeoutError:
            return None, False
        value = result[0] if result.is_ok else None
        return (None, False) if value is None else (result, value.partition("@")[0] == token)


class Round:
    """One load carried out by the runs of a process."""

    def __init__(self, seconds: float, count: int) -> None:
        self._end = time.perf_counter() + seconds
        self._seconds = seconds
        self._total = 0
        self._lost = 0
        self._foreign = 0
        self._latencies: list[float] = []
        self._after_answer: list[float] = []
        self._served = [0] * count

    async def carry_out(self, runs: Sequence[AskingRun]) -> Ran:
        """Let every run ask until the time is over, and wait for what is open then."""
        begin = time.perf_counter()
        is_crowd = len(runs) > 1
        lanes: list[tuple[int, AskingRun]] = []
        for index, run in enumerate(runs):
            lanes += [(index, run)] * (_GREEDY_LANES if is_crowd and index % _GREEDY_EVERY == 0 else 1)
        await asyncio.gather(*(self._lane(index, run) for index, run in lanes))
        sample = Sample(
            count=self._total,
            elapsed_s=time.perf_counter() - begin,
            latencies_ms=self._latencies,
            lost=self._lost,
            foreign=self._foreign,
        )
        return Ran(sample, self._after_answer, self._served)

    async def _lane(self, index: int, run: AskingRun) -> None:
        while (asked_at := time.perf_counter()) < self._end:
            result, is_mine = await run.ask()
            now = time.perf_counter()
            self._total += 1
            if result is None:
                self._lost += 1
                continue
            self._foreign += not is_mine
            self._latencies.append((now - asked_at) * 1000)
            answered_at = int((result[0] or "@0").rpartition("@")[2])
            self._after_answer.append((time.monotonic_ns() - answered_at) / 1e6)
            if now < self._end:  # turns are compared while all want one
                self._served[index] += 1


async def ask(count: int) -> None:
    """Be a process of ``count`` runs."""
    settings = load_settings()
    layout = Layout.of(settings)
    layout.prepare()
    context = new_context()
    context.set(zmq.MAX_SOCKETS, _MAX_SOCKETS)
    runs = [await AskingRun.start(settings, layout, context) for _ in range(count)]
    ticking = asyncio.create_task(_tick(runs))

    async def carry_out(line: bytes) -> Ran:
        load = msgspec.json.decode(line, type=Load)
        return await Round(load.seconds, load.k).carry_out(runs[: load.k])

    await serve_lines_on_loop(carry_out)
    ticking.cancel()
    await asyncio.gather(*(run.bus.close() for run in runs))
    context.term()


async def _tick(runs: Sequence[AskingRun]) -> None:
    """Look after the ask services' time, as each runner's loop does after its own."""
    while True:
        await asyncio.sleep(_TICK_S)
        now = time.monotonic()
        for run in runs:
            run.service.tick(now)


class AnsweringDialogs:
    """A human who answers at once, with the question's own token and the moment."""

    def __init__(self) -> None:
        self._shown: dict[tuple[str, int], int] = {}

    async def select(self, title: str, options: Sequence[str], context: DialogContext) -> str | None:
        """Not asked here."""
        del title, context
        return options[0]

    async def input(self, title: str, placeholder: str, context: DialogContext) -> str | None:
        """Answer."""
        del placeholder
        key = (context.ask_id, context.number)
        self._shown[key] = self._shown.get(key, 0) + 1
        return f"{title.partition('[')[2].rstrip(']')}@{time.monotonic_ns()}"

    async def look(self, _line: bytes) -> Looked:
        """Say what was shown since the last time."""
        shown, self._shown = self._shown, {}
        return Looked(len(shown), sum(times - 1 for times in shown.values()))


async def host() -> None:
    """Be the session's host."""
    settings = load_settings()
    layout = Layout.of(settings)
    layout.prepare()
    dialogs = AnsweringDialogs()
    async with await Bus.connect(settings, kind=PeerKind.HOST, session=_SESSION) as bus:
        session = HostSession(bus, layout, settings, _SESSION, dialogs)
        await session.start()
        await serve_lines_on_loop(dialogs.look)
        await session.stop()


def main(mode: str, count: str = "0") -> None:
    """Be one of the processes."""
    asyncio.run(host() if mode == "host" else ask(int(count)))


if __name__ == "__main__":
    main(*sys.argv[1:])
