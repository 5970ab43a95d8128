"""Calls through all of pisub against bare pyzmq, msgspec and FD-watching clients through a forwarder.

One process asks, one answers, K calls outstanding. The rival has no names, deadlines, roles, resends or answer cache:
it is what the same libraries can do with nothing around them.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

from benchmarks.broker import all_in_c
from benchmarks.harness import (
    CpuMeter,
    Report,
    Sample,
    Side,
    Worker,
    compare,
    environment_of,
    machine,
    private_broker,
    private_settings,
)
from benchmarks.load_lanes import Load
from benchmarks.native_build import NotBuildableError

_WORKER = "benchmarks.bus_worker"


class Pair:
    """An asking and an answering process, and what lies between them."""

    def __init__(self, case: str, asker: Worker, answerer: Worker, between: dict[str, int]) -> None:
        self.case = case
        self._asker = asker
        self._pids = {"asker": asker.pid, "answerer": answerer.pid, **between}

    def measure(self, k: int, seconds: float) -> Sample:
        """Let the asker ask."""
        meter = CpuMeter(**self._pids)
        sample = self._asker.ask(Load(k, seconds), Sample)
        sample.cpu_us = meter.per_operation(sample.count)
        return sample


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare this benchmark's arguments."""
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds (default 9)")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one measurement (default 1)")
    parser.add_argument("--k", type=int, nargs="+", default=[1, 64, 1000], help="calls outstanding (default 1 64 1000)")


def run(args: argparse.Namespace) -> Report:
    """Measure."""
    with private_settings() as settings, private_broker(settings) as broker, ExitStack() as stack:
        environ = environment_of(settings)
        answerer = stack.enter_context(Worker(_WORKER, "answer", environ=environ))
        asker = stack.enter_context(Worker(_WORKER, "ask", environ=environ))
        endpoint = f"ipc://{Path(str(settings.runtime_dir), 'bare.sock')}"
        forwarder = stack.enter_context(Worker(_WORKER, "bare-forward", endpoint))
        bare_answerer = stack.enter_context(Worker(_WORKER, "bare-answer", endpoint))
        bare_asker = stack.enter_context(Worker(_WORKER, "bare-ask", endpoint))
        sides: list[Side] = [
            Pair("pisub call", asker, answerer, {"broker": broker.process.pid}),
            Pair("bare pyzmq+msgspec", bare_asker, bare_answerer, {"broker": forwarder.pid}),
        ]
        skipped: list[str] = []
        try:
            sides.append(all_in_c("all in C", Path(str(settings.runtime_dir)), stack))
        except NotBuildableError as error:
            skipped.append(f"all in C ({error})")
        rows = compare(
            sides,
            ks=args.k,
            rounds=args.rounds,
            seconds=args.seconds,
            progress=lambda text: print(text, file=sys.stderr),
        )
        return Report(benchmark="bus", machine=machine(), rows=rows, skipped=skipped)
