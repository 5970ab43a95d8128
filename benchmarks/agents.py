"""What agents cost: 200 of them found for the first time, found again, found after an edit, and one launch resolved.

Found for the first time means files read and parsed; again means that each file is looked at and none is read.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.harness import Report, Side, compare, machine
from benchmarks.record import Repeated
from pisub.agents.discovery import AgentFinder
from pisub.agents.packages import InstalledPackages
from pisub.config import Settings
from pisub.preflight import PreflightRequest, preflight
from pisub.record.layout import Layout

_HEAD: Final = """\
---
name: agent-{0}
description: Does the thing number {0}, and says how it went.
aliases: [a{0}]
tools: read, grep, find, ls, bash
model: small
timeoutMs: 600000
runner: {{type: external-cli, argv: [cat]}}
---
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare this benchmark's arguments."""
    parser.add_argument("--agents", type=int, default=200, help="files in the project (default 200)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default 5)")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each in each round (default 0.5)")


def run(args: argparse.Namespace) -> Report:
    """Measure."""
    with tempfile.TemporaryDirectory(prefix="psb-") as base:
        root, user = Path(base) / "project", Path(base) / "user"
        folder = root / ".pisub/agents"
        folder.mkdir(parents=True)
        for number in range(args.agents):
            (folder / f"agent-{number}.md").write_text(_HEAD.format(number) + "Do the thing.\n" * 40)
        settings = Settings(home=Path(base) / "state")
        layout = Layout.of(settings)
        packages = InstalledPackages()
        packages.folders()

        def finder() -> AgentFinder:
            return AgentFinder(settings, user_folder=user, packages=packages)

        warm, edited, numbers = finder(), finder(), itertools.count()

        def edit() -> None:
            (folder / "agent-0.md").write_text(_HEAD.format(0) + f"Edit {next(numbers)}.\n")
            edited.find(root)

        request = PreflightRequest(agent="agent-1", task="a task", cwd=root)
        sides: list[Side] = [
            Repeated(f"pisub, {args.agents} agents, first time", lambda: finder().find(root)),
            Repeated(f"pisub, {args.agents} agents, again", lambda: warm.find(root)),
            Repeated(f"pisub, {args.agents} agents, one edited", edit),
            Repeated("pisub preflight", lambda: preflight(settings, layout, warm, request)),
        ]
        rows = compare(sides, ks=[1], rounds=args.rounds, seconds=args.seconds)
        # None of them is a rival of another.
        alone = {row.case: msgspec.structs.replace(row, ratio=None, against=None) for row in rows}
    return Report(benchmark="agents", machine=machine(), rows=list(alone.values()))
