"""N askers in P processes, through broker and host, to a dialog that answers by itself.

Two pairs of cases. The messages alone, K asks outstanding over P processes, beside the same bodies through a bare
forwarder: what broker and bus cost. And the real thing, N runs with the runner's own ask service, their files in a
record, a host session whose dialog answers at once: K = 1 is the overhead of one ask; with N outstanding the latency is
mostly the wait for one's turn, so what follows the human's answer is printed too, and how even the turns were.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from benchmarks.askers_runs import Looked, Ran
from benchmarks.harness import (
    CpuMeter,
    Report,
    Sample,
    Worker,
    compare,
    environment_of,
    machine,
    percentile,
    private_broker,
    private_settings,
)
from benchmarks.load_lanes import Load, ask_all, merge, spread

_MESSAGES = "benchmarks.askers_worker"
_RUNS = "benchmarks.askers_runs"


class Crowd:
    """Several asking processes, one answering one, and what lies between them."""

    def __init__(self, case: str, askers: Sequence[Worker], answerer: Worker, between: dict[str, int]) -> None:
        self.case = case
        self._askers = askers
        self._answerer = answerer
        self._pids: dict[str, int | list[int]] = {
            **between,
            "host": answerer.pid,
            "askers": [each.pid for each in askers],
        }

    def measure(self, k: int, seconds: float) -> Sample:
        """Let them ask; then have the answerer say what it was asked twice."""
        meter = CpuMeter(**self._pids)
        sample = ask_all(self._askers, Load(k, seconds))
        sample.cpu_us = meter.per_operation(sample.count)
        sample.doubled = self._answerer.ask("doubled", int)
        return sample


class Runs:
    """Runs that ask by the runner's ask service, and a host session."""

    case = "pisub ask, record and dialog"

    def __init__(self, askers: Sequence[Worker], host: Worker, broker_pid: int) -> None:
        self._askers = askers
        self._host = host
        self._pids: dict[str, int | list[int]] = {
            "broker": broker_pid,
            "host": host.pid,
            "askers": [each.pid for each in askers],
        }

    def measure(self, k: int, seconds: float) -> Sample:
        """Let ``k`` runs ask, again and again."""
        meter = CpuMeter(**self._pids)
        busy = [(each, share) for each, share in zip(self._askers, spread(k, len(self._askers)), strict=True) if share]
        for asker, share in busy:
            asker.send(Load(share, seconds))
        ran = [asker.receive(Ran) for asker, _ in busy]
        sample = merge([each.sample for each in ran])
        sample.cpu_us = meter.per_operation(sample.count)
        looked = self._host.ask("look", Looked)
        sample.doubled = looked.doubled
        after = [latency for each in ran for latency in each.after_answer_ms]
        served = [count for each in ran for count in each.served]
        middle = percentile(served, 0.5)
        sample.extra = {
            "after answer p50 ms": percentile(after, 0.5),
            "after answer p99 ms": percentile(after, 0.99),
            "turns max apart": float(max(served) - min(served)),
            "turns median apart": float(percentile([abs(count - middle) for count in served], 0.5)),
            "median turns": float(middle),
        }
        return sample


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare this benchmark's arguments."""
    parser.add_argument("--askers", type=int, default=1000, help="runs that ask in the real thing (default 1000)")
    parser.add_argument("--processes", type=int, default=4, help="processes that share them (default 4)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default 5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one measurement of messages (default 1)")
    parser.add_argument("--k", type=int, nargs="+", default=[64, 1000], help="asks outstanding (default 64 1000)")
    parser.add_argument("--run-rounds", type=int, default=2, help="rounds of the real thing (default 2, 0: none)")
    parser.add_argument("--run-seconds", type=float, default=6.0, help="length of one of its measurements (default 6)")
    parser.add_argument("--fsync", action="store_true", help="flush answers to the disk, as pisub does by default")


def run(args: argparse.Namespace) -> Report:
    """Measure."""

    def progress(text: str) -> None:
        print(text, file=sys.stderr)

    with private_settings() as defaults, ExitStack() as stack:
        settings = msgspec.structs.replace(defaults, fsync=args.fsync)
        broker = stack.enter_context(private_broker(settings))
        environ = environment_of(settings)
        with ExitStack() as workers:

            def start(module: str, *arguments: str) -> Worker:
                return workers.enter_context(Worker(module, *arguments, environ=environ))

            def crowd(case: str, host: str, asker: str, endpoint: str, between: dict[str, int]) -> Crowd:
                answerer = start(_MESSAGES, host, endpoint)
                askers = [start(_MESSAGES, asker, endpoint, str(number)) for number in range(args.processes)]
                return Crowd(case, askers, answerer, between)

            endpoint = f"ipc://{Path(str(settings.runtime_dir), 'bare.sock')}"
            forwarder = start("benchmarks.bus_worker", "bare-forward", endpoint)
            rows = compare(
                [
                    crowd("pisub ask, messages", "host", "ask", "", {"broker": broker.process.pid}),
                    crowd("bare pyzmq+msgspec", "bare-host", "bare-ask", endpoint, {"broker": forwarder.pid}),
                ],
                ks=args.k,
                rounds=args.rounds,
                seconds=args.seconds,
                progress=progress,
            )
        if not args.run_rounds:
            return Report(benchmark="askers", machine=machine(), rows=rows)
        with ExitStack() as workers:
            # The askers first and last: a host that sees them go would look after their runs.
            shares = spread(args.askers, args.processes)
            askers = [workers.enter_context(Worker(_RUNS, "ask", str(each), environ=environ)) for each in shares]
            host = workers.enter_context(Worker(_RUNS, "host", environ=environ))
            rows += compare(
                [Runs(askers, host, broker.process.pid)],
                ks=[1, args.askers],
                rounds=args.run_rounds,
                seconds=args.run_seconds,
                progress=progress,
            )
        return Report(benchmark="askers", machine=machine(), rows=rows)
