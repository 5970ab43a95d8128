"""The suite: bus, broker, askers, rivals and launch, sized to about five minutes together.

``--write`` writes its tables into ``benchmarks/README.md``, below the marker. A benchmark that cannot run here is
skipped with its reason.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Final

from benchmarks import all_readme
from benchmarks.harness import Report, Suite, machine

#: Each with its own arguments; ``--scale`` multiplies the rounds.
_PARTS: Final[tuple[tuple[str, int, tuple[str, ...]], ...]] = (
    ("bus", 7, ("--seconds", "0.5")),
    ("broker", 5, ("--seconds", "0.5", "--k", "1", "64", "256", "1000")),
    ("askers", 5, ("--seconds", "0.5", "--run-rounds", "2", "--run-seconds", "6")),
    ("rivals", 5, ("--seconds", "0.5")),
    ("launch", 5, ("--seconds", "0.6", "--idle", "20")),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the suite's arguments."""
    parser.add_argument("--write", action="store_true", help="write the tables into benchmarks/README.md")
    parser.add_argument("--scale", type=float, default=1.0, help="this many times the usual rounds (default 1)")


def run(args: argparse.Namespace) -> Suite:
    """Run them all, one after the other."""
    reports: list[Report] = []
    for name, rounds, arguments in _PARTS:
        print(f"{name} …", file=sys.stderr)
        try:
            reports.append(_run(name, max(1, round(rounds * args.scale)), arguments))
        except SystemExit as error:  # it says why it cannot run here
            reports.append(Report(benchmark=name, machine=machine(), rows=[], skipped=[str(error)]))
    suite = Suite(benchmark="all", machine=machine(), reports=reports)
    if args.write:
        all_readme.write(suite)
    return suite


def _run(name: str, rounds: int, arguments: tuple[str, ...]) -> Report:
    module = importlib.import_module(f"benchmarks.{name}")
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    report: Report = module.run(parser.parse_args([*arguments, "--rounds", str(rounds)]))
    return report
