"""From asking for a run to its first message: by a warm nursery, by a new interpreter, against bare interpreters.

K = 1 is one launch after the other; ``per s`` is one over the latency there, so the ratios are those of latencies. With
more, K launches are under way at any time, each from its request to its run's end, and ``per s`` is what was ended. A
bare interpreter's figure is from its start to its end, with nothing to do: what any launcher that executes a program
pays at least. The idle rows have the memory of a runner whose agent waits (PSS: shared pages count in part).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor

import msgspec

from benchmarks.harness import Report, Row, Sample, Side, compare, machine, private_broker, private_settings
from benchmarks.launch_runs import Launches
from pisub.config import Settings
from pisub.launchers.nursery import nurseries
from pisub.paths import runtime_dir
from pisub.process import open_pidfd, send_signal

_HANG_MS = 60_000


class Bare:
    """A program that does nothing."""

    def __init__(self, case: str, *argv: str) -> None:
        self.case = case
        self._argv = argv

    def measure(self, k: int, seconds: float) -> Sample:
        """Run it for so long, ``k`` at a time."""
        begin = time.monotonic()
        if k == 1:
            latencies = _repeat(self._run_ms, seconds)
            return Sample(count=len(latencies), elapsed_s=sum(latencies) / 1000, latencies_ms=latencies)
        with ThreadPoolExecutor(k) as pool:
            lanes = [pool.submit(_repeat, self._run_ms, seconds) for _ in range(k)]
            latencies = [latency for lane in lanes for latency in lane.result()]
        return Sample(count=len(latencies), elapsed_s=time.monotonic() - begin, latencies_ms=latencies)

    def _run_ms(self) -> float:
        begin = time.monotonic_ns()
        subprocess.run(self._argv, check=True)
        return (time.monotonic_ns() - begin) / 1e6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare this benchmark's arguments."""
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds (default 9)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each way in each round (default 1)")
    parser.add_argument("--k", type=int, nargs="+", default=[1, 8], help="launches under way (default 1 8)")
    parser.add_argument("--idle", type=int, default=50, help="idle runners whose memory is measured (default 50)")


def run(args: argparse.Namespace) -> Report:
    """Measure."""
    skipped: list[str] = []
    with private_settings() as settings, private_broker(settings), _daemons_end(settings):
        by_exec = msgspec.structs.replace(settings, nursery=False)
        with Launches("pisub nursery", settings) as warm, Launches("pisub exec", by_exec) as cold:
            sides: list[Side] = [warm, cold, Bare("python -c pass", sys.executable, "-c", "pass")]
            if node := shutil.which("node"):
                sides.append(Bare("node -e 0", node, "-e", "0"))
            else:
                skipped.append("node -e 0 (no node on PATH)")
            rows = compare(
                sides,
                ks=args.k,
                rounds=args.rounds,
                seconds=args.seconds,
                progress=lambda text: print(text, file=sys.stderr),
            )
            rows += _against(rows, "pisub exec", [side.case for side in sides[2:]])
            if args.idle:
                rows += _idle_rows(warm, cold, args.idle)
    return Report(benchmark="launch", machine=machine(), rows=rows, skipped=skipped)


def _against(rows: list[Row], ours: str, rivals: list[str]) -> list[Row]:
    """Compare the other way of ours too, by the medians: ``compare`` has one that it compares with all."""
    found: list[Row] = []
    for row in [each for each in rows if each.case == ours]:
        for rival in (each for each in rows if each.case in rivals and each.k == row.k):
            ratio = round(row.per_s / rival.per_s, 3)
            found.append(msgspec.structs.replace(row, ratio=ratio, against=rival.case))
    return found


def _idle_rows(warm: Launches, cold: Launches, count: int) -> list[Row]:
    sizes = {side.case: statistics.mean(side.idle_pss_mb(count)) for side in (warm, cold)}
    ratio = round(sizes[warm.case] / sizes[cold.case], 3)
    return [
        Row(
            case=f"{case}, idle",
            k=count,
            per_s=0,
            p50_ms=0,
            p99_ms=0,
            lost=0,
            doubled=0,
            ratio=ratio if case == warm.case else None,
            against=f"{cold.case}, idle" if case == warm.case else None,
            extra={"PSS MB": round(size, 2)},
        )
        for case, size in sizes.items()
    ]


def _repeat(once_ms: Callable[[], float], seconds: float) -> list[float]:
    latencies: list[float] = []
    end = time.monotonic() + seconds
    while not latencies or time.monotonic() < end:
        latencies.append(once_ms())
    return latencies


@contextlib.contextmanager
def _daemons_end(settings: Settings) -> Generator[None]:
    """End the nurseries that the launches started."""
    try:
        yield
    finally:
        for identity in nurseries(runtime_dir(settings)):
            descriptor = open_pidfd(identity)
            if descriptor is not None:
                send_signal(identity, signal.SIGTERM)
                poller = select.poll()
                poller.register(descriptor, select.POLLIN)
                poller.poll(_HANG_MS)
                os.close(descriptor)
