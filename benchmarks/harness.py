"""What all benchmarks share: workers in processes of their own, interleaved rounds, medians, the table and the JSON.

Only ratios within one interleaved run mean anything: on a shared machine absolute figures move by a factor of two.
"""

from __future__ import annotations

import os
import platform
import select
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol, Self, TypeVar, cast

import msgspec
import psutil
import zmq

from pisub.config import Settings, caller_environment
from pisub.launch import BrokerInfo, ensure_broker
from pisub.process import open_pidfd, send_signal

T = TypeVar("T")

_ROOT = Path(__file__).resolve().parents[1]


class Sample(msgspec.Struct, kw_only=True):
    """One measurement of one side."""

    count: int
    elapsed_s: float
    latencies_ms: list[float]
    lost: int = 0
    doubled: int = 0
    #: Answers that belonged to another question.
    foreign: int = 0
    #: Microseconds of CPU per operation, by process.
    cpu_us: dict[str, float] = {}
    #: What only this benchmark measures, by a name with its unit.
    extra: dict[str, float] = {}

    @property
    def per_s(self) -> float:
        """Operations per second."""
        return self.count / self.elapsed_s


class Row(msgspec.Struct, kw_only=True):
    """One line of the result: medians over the rounds; ``ratio`` is ours over ``against``, round by round."""

    case: str
    k: int
    per_s: float
    p50_ms: float
    p99_ms: float
    lost: int
    doubled: int
    foreign: int = 0
    ratio: float | None = None
    against: str | None = None
    cpu_us: dict[str, float] = {}
    extra: dict[str, float] = {}


class Report(msgspec.Struct, kw_only=True):
    """What ``--json`` prints."""

    benchmark: str
    machine: str
    rows: list[Row]
    #: What could not be compared, and why; one line each.
    skipped: list[str] = []


class Suite(msgspec.Struct, kw_only=True):
    """What ``--json`` prints of several benchmarks."""

    benchmark: str
    machine: str
    #: What else the machine had to do: its load average when the suite began.
    load_before: float
    reports: list[Report]


class Side(Protocol):
    """One of the things that are compared."""

    @property
    def case(self) -> str:
        """Its name in the result; ours has ``pisub`` in it."""
        ...

    def measure(self, k: int, seconds: float) -> Sample:
        """Keep ``k`` operations outstanding for so long."""
        ...


class Worker:
    """A process ``python -m MODULE …`` that answers one JSON line with one JSON line until its input ends.

    The first line is its own: it says that it is ready. It has a session of its own, as our broker has: under load
    Linux divides the processors by session first.
    """

    def __init__(self, module: str, *arguments: str, environ: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            env={**caller_environment(), **(environ or {})},
            start_new_session=True,
        )
        self.receive(object)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        cast("IO[bytes]", self._process.stdin).close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        cast("IO[bytes]", self._process.stdout).close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, question: object, kind: type[T]) -> T:
        """Send one question and wait for its answer."""
        self.send(question)
        return self.receive(kind)

    def send(self, question: object) -> None:
        """Send one question."""
        stdin = cast("IO[bytes]", self._process.stdin)
        stdin.write(msgspec.json.encode(question) + b"\n")
        stdin.flush()

    def receive(self, kind: type[T]) -> T:
        """Wait for the answer to the oldest question that has none."""
        line = cast("IO[bytes]", self._process.stdout).readline()
        if not line:
            raise RuntimeError(f"The benchmark's worker {self._process.args!r} ended with {self._process.wait()}.")
        return msgspec.json.decode(line, type=kind)


def serve_lines(handle: Callable[[bytes], object]) -> None:
    """Be a worker that does one thing at a time: say ready, then answer each line."""
    reply_line("ready")
    for line in sys.stdin.buffer:
        reply_line(handle(line))


def reply_line(answer: object) -> None:
    """Write one JSON line."""
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


class CpuMeter:
    """CPU time that processes use between two looks, all their threads together; several may share a name."""

    def __init__(self, **pids: int | Sequence[int]) -> None:
        self._processes = {
            name: [psutil.Process(pid) for pid in ([each] if isinstance(each, int) else each)]
            for name, each in pids.items()
        }
        self._before = self._look()

    def per_operation(self, count: int) -> dict[str, float]:
        """Return microseconds per operation since the meter was made."""
        after = self._look()
        return {name: (after[name] - self._before[name]) / max(count, 1) * 1e6 for name in after}

    def _look(self) -> dict[str, float]:
        times = {name: [each.cpu_times() for each in processes] for name, processes in self._processes.items()}
        return {name: sum(each.user + each.system for each in all_of_it) for name, all_of_it in times.items()}


@contextmanager
def private_settings() -> Generator[Settings]:
    """Give a benchmark a state root and a runtime directory of its own."""
    with tempfile.TemporaryDirectory(prefix="psb-") as base:
        # The rivals' turns must not be long enough for ours to leave as idle.
        yield Settings(home=Path(base, "home"), runtime_dir=Path(base, "run"), fsync=False, idle_exit_ms=3_600_000)


@contextmanager
def private_broker(settings: Settings) -> Generator[BrokerInfo]:
    """Start a broker for a benchmark, and end it. Its directory may only go when it, which writes there, has gone."""
    broker = ensure_broker(settings)
    descriptor = open_pidfd(broker.process)
    try:
        yield broker
    finally:
        send_signal(broker.process, signal.SIGTERM)
        if descriptor is not None:
            poller = select.poll()
            poller.register(descriptor, select.POLLIN)
            poller.poll(10_000)
            os.close(descriptor)


def environment_of(settings: Settings) -> dict[str, str]:
    """Return the variables that make a worker load these settings."""
    return {
        "PISUB_HOME": str(settings.home),
        "PISUB_RUNTIME_DIR": str(settings.runtime_dir),
        "PISUB_FSYNC": str(int(settings.fsync)),
    }


def compare(
    sides: Sequence[Side],
    *,
    ks: Sequence[int],
    rounds: int,
    seconds: float,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """Measure every side in every round, one after the other, and compare the first with each of the others.

    A first round warms up and is not counted.
    """
    samples: dict[tuple[str, int], list[Sample]] = {(side.case, k): [] for side in sides for k in ks}
    for number in range(rounds + 1):
        for k in ks:
            # The order turns from round to round, so that no side always runs behind the same other one.
            turn = number % len(sides)
            for side in (*sides[turn:], *sides[:turn]):
                sample = side.measure(k, seconds if number else min(seconds, 0.3))
                if number:
                    samples[side.case, k].append(sample)
        progress(f"round {number} of {rounds}")
    ours = sides[0].case
    rows: list[Row] = []
    for k in ks:
        rows += [_row(side.case, k, samples[side.case, k]) for side in sides]
        for rival in sides[1:]:
            ratios = [a.per_s / b.per_s for a, b in zip(samples[ours, k], samples[rival.case, k], strict=True)]
            row = next(row for row in rows if row.case == ours and row.k == k)
            if row.ratio is not None:
                row = msgspec.structs.replace(row)
                rows.append(row)
            row.ratio, row.against = round(statistics.median(ratios), 3), rival.case
    return rows


def _row(case: str, k: int, samples: Sequence[Sample]) -> Row:
    names = samples[0].cpu_us
    return Row(
        case=case,
        k=k,
        per_s=round(statistics.median(each.per_s for each in samples), 1),
        p50_ms=round(statistics.median(percentile(each.latencies_ms, 0.5) for each in samples), 4),
        p99_ms=round(statistics.median(percentile(each.latencies_ms, 0.99) for each in samples), 4),
        lost=sum(each.lost for each in samples),
        doubled=sum(each.doubled for each in samples),
        foreign=sum(each.foreign for each in samples),
        extra={name: round(statistics.median(each.extra[name] for each in samples), 3) for name in samples[0].extra},
        cpu_us={name: round(statistics.median(each.cpu_us[name] for each in samples), 2) for name in names},
    )


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which so much of the values lies; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def machine() -> str:
    """Describe where this was measured."""
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, CPython {platform.python_version()}, "
        f"pyzmq {zmq.__version__}, libzmq {zmq.zmq_version()}, msgspec {msgspec.__version__}"
    )


def table(report: Report) -> str:
    """Lay a report out for a person."""
    lines = [f"{report.benchmark} on {report.machine}", ""]
    lines.append(
        f"{'case':<28}{'K':>6}{'per s':>11}{'p50 ms':>10}{'p99 ms':>10}{'lost':>6}{'twice':>6}{'ratio':>8}"
        "  CPU us per op"
    )
    for row in report.rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        cpu = ", ".join(f"{name} {value:.1f}" for name, value in row.cpu_us.items())
        extra = "".join(f"; {name} {value:g}" for name, value in row.extra.items())
        lines.append(
            f"{row.case:<28}{row.k:>6}{row.per_s:>11,.0f}{row.p50_ms:>10.3f}{row.p99_ms:>10.3f}{row.lost:>6}"
            f"{row.doubled:>6}{ratio:>8}  {cpu}"
            + (f"  (ratio to {row.against})" if row.against else "")
            + (f"; foreign {row.foreign}" if row.foreign else "")
            + extra
        )
    return "\n".join([*lines, *(f"skipped: {each}" for each in report.skipped)])
