"""Calls through pisub against other ways to ask another process on the same machine, in the same rounds.

One process asks, one answers, K outstanding; the same 300 bytes there and back through whatever lies between. Rivals
that are not installed are skipped by name: ``make bench-rivals`` installs what it can. Each has a server of its own on
the loopback, in a directory of its own.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import cast

from benchmarks.bus import Pair
from benchmarks.harness import (
    Report,
    Side,
    Worker,
    compare,
    environment_of,
    machine,
    private_broker,
    private_settings,
)
from benchmarks.rival_base import MissingError, Rival

NAMES = ("zmq", "nats", "redis", "rabbitmq", "autogen", "xoscar", "zerorpc")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare this benchmark's arguments."""
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default 5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one measurement (default 1)")
    parser.add_argument("--k", type=int, nargs="+", default=[1, 64, 1000], help="calls outstanding (default 1 64 1000)")
    parser.add_argument("--only", choices=NAMES, nargs="+", default=list(NAMES), help="these rivals")


def run(args: argparse.Namespace) -> Report:
    """Measure."""
    with tempfile.TemporaryDirectory(prefix="psb-") as scratch, private_settings() as settings, ExitStack() as stack:
        broker = stack.enter_context(private_broker(settings))
        environ = environment_of(settings)
        answerer = stack.enter_context(Worker("benchmarks.bus_worker", "answer", environ=environ))
        asker = stack.enter_context(Worker("benchmarks.bus_worker", "ask", environ=environ))
        sides: list[Side] = [Pair("pisub call", asker, answerer, {"broker": broker.process.pid})]
        rivals, skipped = start_rivals(args.only, Path(scratch), stack)
        for line in skipped:
            print(f"skipped: {line}", file=sys.stderr)
        rows = compare(
            [*sides, *rivals],
            ks=args.k,
            rounds=args.rounds,
            seconds=args.seconds,
            progress=lambda text: print(text, file=sys.stderr),
        )
        return Report(benchmark="rivals", machine=machine(), rows=rows, skipped=skipped)


def start_rivals(names: Sequence[str], scratch: Path, stack: ExitStack) -> tuple[list[Side], list[str]]:
    """Start each rival that can be, until ``stack`` ends; return them, and a line for each other one."""
    sides: list[Side] = []
    skipped: list[str] = []
    for name in names:
        directory = scratch / name
        directory.mkdir()
        try:
            rival = cast("Rival", importlib.import_module(f"benchmarks.rival_{name}"))
            server = stack.enter_context(rival.server(directory))
        except ModuleNotFoundError as error:
            skipped.append(f"{name} (the package {error.name} is not installed)")
        except MissingError as error:
            skipped.append(f"{name} ({error})")
        else:
            arguments = ("benchmarks.rival_worker", name)
            answerer = stack.enter_context(Worker(*arguments, "answer", server.endpoint))
            asker = stack.enter_context(Worker(*arguments, "ask", server.endpoint))
            sides.append(Pair(rival.case, asker, answerer, {"broker": server.pid}))
    return sides, skipped
