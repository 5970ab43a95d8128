"""From asking for a run to its agent's first line: by a warm nursery, by a new interpreter, against bare interpreters.

One launch after the other. A bare interpreter's figure is from its start to its end, with nothing to do: what any
launcher that executes a program pays at least. ``per s`` is one over the latency, so the ratios are those of latencies.
"""

from __future__ import annotations

import argparse
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from benchmarks.harness import Report, Sample, Side, compare, machine, private_settings
from pisub.config import Settings, caller_environment
from pisub.ids import new_id
from pisub.launch import find_broker
from pisub.launchers.local import LocalLauncher
from pisub.launchers.nursery import nurseries
from pisub.paths import runtime_dir
from pisub.process import open_pidfd, own_identity, send_signal
from pisub.record.layout import Layout
from pisub.record.results import read_result
from pisub.record.submit import submit_run
from pisub.runs.spec import AgentSnapshot, LaunchMessage, RunnerSpec, RunSpec

_HANG_S = 60.0
_AGENT = Path(__file__).with_name("launch_agent.py")


class Launches:
    """Runs of an agent that says when it was reached."""

    def __init__(self, case: str, settings: Settings) -> None:
        self.case = case
        self._launcher = LocalLauncher(settings)
        self._settings = settings
        self._layout = Layout.of(settings)
        self._layout.prepare()

    def measure(self, k: int, seconds: float) -> Sample:
        """Launch for so long, one at a time."""
        del k
        return _repeat(self._launch_ms, seconds)

    def _launch_ms(self) -> float:
        message = self._submit()
        begin = time.monotonic_ns()
        self._launcher.launch_blocking(message)
        paths = self._layout.run(message.run_id)
        end = time.monotonic() + _HANG_S
        while (result := read_result(paths)) is None:
            if time.monotonic() > end:
                raise TimeoutError(f"run {message.run_id} did not end")
            time.sleep(0.002)
        return (int(result.output) - begin) / 1e6

    def _submit(self) -> LaunchMessage:
        spec = RunSpec(
            run_id=new_id(),
            session_id="benchmark",
            agent=AgentSnapshot(name="clock", runner=RunnerSpec(type="python", target=f"{_AGENT}:agent")),
            task="",
            cwd=str(_AGENT.parent),
            submitter=own_identity(),
            submitted_at=time.time_ns() // 1_000_000,
        )
        submit_run(self._layout, spec)
        return LaunchMessage(
            run_id=spec.run_id,
            home=str(self._settings.home),
            runtime_dir=str(self._settings.runtime_dir),
            environ=caller_environment(),
            cwd=spec.cwd,
        )


class Bare:
    """A program that does nothing."""

    def __init__(self, case: str, *argv: str) -> None:
        self.case = case
        self._argv = argv

    def measure(self, k: int, seconds: float) -> Sample:
        """Run it for so long, again and again."""
        del k
        return _repeat(self._run_ms, seconds)

    def _run_ms(self) -> float:
        begin = time.monotonic_ns()
        subprocess.run(self._argv, check=True)
        return (time.monotonic_ns() - begin) / 1e6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare this benchmark's arguments."""
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds (default 9)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each way in each round (default 1)")


def run(args: argparse.Namespace) -> Report:
    """Measure."""
    with private_settings() as settings:
        sides: list[Side] = [
            Launches("pisub nursery", settings),
            Launches("pisub exec", msgspec.structs.replace(settings, nursery=False)),
            Bare("python -c pass", sys.executable, "-c", "pass"),
        ]
        if node := shutil.which("node"):
            sides.append(Bare("node -e 0", node, "-e", "0"))
        try:
            rows = compare(sides, ks=[1], rounds=args.rounds, seconds=args.seconds)
        finally:
            _end_daemons(settings)
    return Report(benchmark="launch", machine=machine(), rows=rows)


def _repeat(once_ms: Callable[[], float], seconds: float) -> Sample:
    latencies: list[float] = []
    end = time.monotonic() + seconds
    while not latencies or time.monotonic() < end:
        latencies.append(once_ms())
    return Sample(count=len(latencies), elapsed_s=sum(latencies) / 1000, latencies_ms=latencies)


def _end_daemons(settings: Settings) -> None:
    broker = find_broker(settings)
    for identity in [*nurseries(runtime_dir(settings)), *([] if broker is None else [broker.process])]:
        descriptor = open_pidfd(identity)
        if descriptor is not None:
            send_signal(identity, signal.SIGTERM)
            select.select([descriptor], [], [], _HANG_S)
            os.close(descriptor)
