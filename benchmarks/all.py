"""The suite: bus, broker, askers, rivals and launch, sized to about five minutes together.

``--write`` writes its tables into ``benchmarks/README.md``, below the marker. A benchmark that cannot run here is
skipped with its reason.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import all_readme
from benchmarks.harness import Report, Suite, machine

_ROOT: Final = Path(__file__).resolve().parents[1]
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
    load_before = os.getloadavg()[0]
    reports: list[Report] = []
    for name, rounds, arguments in _PARTS:
        print(f"{name} …", file=sys.stderr)
        reports.append(_run(name, max(1, round(rounds * args.scale)), arguments))
    suite = Suite(benchmark="all", machine=machine(), load_before=load_before, reports=reports)
    if args.write:
        all_readme.write(suite)
    return suite


def _run(name: str, rounds: int, arguments: tuple[str, ...]) -> Report:
    """Run one in a process of its own: none is measured with what the one before it has loaded."""
    command = [sys.executable, "-m", "benchmarks", name, "--json", *arguments, "--rounds", str(rounds)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        print(said, file=sys.stderr)
        return Report(benchmark=name, machine=machine(), rows=[], skipped=said.splitlines()[-1:])
    return msgspec.json.decode(done.stdout, type=Report)
