"""Processes that submit runs against caps, all at once: ``python -m tests.support.cap_workers HOME CAPS PLAN``.

The plan is JSON: ``batches`` (sizes, one after another), ``root`` (the run below which, or null), ``die`` (in which
batch, and after how many of its submissions, the process kills itself), ``stay`` (whether it lives on, until its
standard input closes). It prints the ids that it submitted, and ``full`` where a cap refused.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import msgspec

from pisub.errors import CapReachedError
from pisub.record.atomic import read_record
from pisub.record.caps import Caps, admission
from pisub.record.layout import Layout
from pisub.record.submit import submit_run
from pisub.runs.spec import RunSpec
from tests.support.record_samples import make_spec


class Plan(msgspec.Struct):
    """What one worker does."""

    batches: list[int]
    root: str | None = None
    die: tuple[int, int] | None = None
    stay: bool = False


def work(layout: Layout, caps: Caps, plan: Plan) -> None:
    """Carry a plan out."""
    sys.stdin.readline()  # all begin at once
    root = None if plan.root is None else read_record(layout.run(plan.root).spec, RunSpec)
    for number, size in enumerate(plan.batches):
        specs = [make_spec() for _ in range(size)]
        if root is not None:
            place = {"parent_run_id": root.run_id, "root_run_id": root.run_id, "depth": 1}
            specs = [msgspec.structs.replace(each, **place) for each in specs]
        try:
            with admission(layout, specs, caps, paths=["task"] * size):
                for done, spec in enumerate(specs):
                    if plan.die == (number, done):
                        os.kill(os.getpid(), signal.SIGKILL)
                    submit_run(layout, spec)
        except CapReachedError:
            _say("full")
            continue
        _say(" ".join(each.run_id for each in specs))
    if plan.stay:
        sys.stdin.read()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    work(
        Layout(Path(sys.argv[1]), fsync=False),
        msgspec.json.decode(sys.argv[2], type=Caps),
        msgspec.json.decode(sys.argv[3], type=Plan),
    )
