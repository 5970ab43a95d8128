"""Runs carried out by a real runner process, for tests of the runner itself, and read from their files."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import msgspec

from pisub.config import Settings, caller_environment
from pisub.ids import new_id
from pisub.paths import runtime_dir, state_root
from pisub.process import own_identity
from pisub.record.control import request_control
from pisub.record.journal_reader import JournalReader
from pisub.record.layout import Layout, RunPaths
from pisub.record.model import ControlRequest, JournalEvent, RunResult, RunStatus
from pisub.record.results import read_result
from pisub.record.status import read_status
from pisub.record.submit import submit_run
from pisub.runs.spec import AgentSnapshot, LaunchMessage, RunnerSpec, RunSpec
from tests.support.eventually import HANG_S, eventually

ROOT = Path(__file__).parents[2]
#: What `python -m runner run` does, with bounds that a test can lower.
_RUNNER = """
import os, sys, msgspec
from pisub.config import load_settings
from pisub.runs.spec import LaunchMessage
from runner.app import run
message = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=LaunchMessage)
os.setsid()
code = run(message, settings=load_settings(home=message.home, runtime_dir=message.runtime_dir), **{options})
sys.stdout.flush()
os._exit(code)
"""


def agent_file(directory: Path, source: str, name: str = "agent") -> str:
    """Write a module with an agent and return its target; the function is called ``main``."""
    path = directory / f"{name}.py"
    path.write_text(textwrap.dedent(source))
    return f"{path}:main"


def python_runner(directory: Path, source: str) -> RunnerSpec:
    """Return the runner of a python agent whose module has this source."""
    return RunnerSpec(type="python", target=agent_file(directory, source))


def submit(settings: Settings, runner: RunnerSpec, *, cwd: Path, task: str = "a task", **fields: Any) -> RunSpec:
    """Write a run into the record."""
    layout = Layout.of(settings)
    layout.prepare()
    spec = RunSpec(
        run_id=new_id(),
        session_id="a-session",
        agent=AgentSnapshot(name="tester", runner=runner),
        task=task,
        cwd=str(cwd),
        submitter=own_identity(),
        submitted_at=time.time_ns() // 1_000_000,
        **({"stop_grace_ms": 300} | fields),
    )
    assert submit_run(layout, spec)
    return spec


def launch_message(settings: Settings, spec: RunSpec) -> LaunchMessage:
    """Return what a launcher would hand to this run's runner."""
    return LaunchMessage(
        run_id=spec.run_id,
        home=str(state_root(settings)),
        runtime_dir=str(runtime_dir(settings)),
        environ=caller_environment(),
        cwd=spec.cwd,
    )


class RunnerProcess:
    """One runner, started the plain way; its standard error goes to the run's log, or to ``stderr``."""

    def __init__(self, settings: Settings, spec: RunSpec, *, stderr: Path | None = None, **options: Any) -> None:
        self.spec = spec
        self.paths: RunPaths = Layout.of(settings).run(spec.run_id)
        message = launch_message(settings, spec)
        for log in (self.paths.stdout_log, self.paths.stderr_log):
            log.touch(mode=0o600)
        with self.paths.stdout_log.open("ab") as out, (stderr or self.paths.stderr_log).open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _RUNNER.replace("{options}", repr(options))],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=errors,
                cwd=ROOT,
                env=message.environ | {"PYTHONPATH": str(ROOT)},
            )
        assert self.process.stdin is not None
        with self.process.stdin as pipe:
            pipe.write(msgspec.msgpack.encode(message))

    def wait(self) -> RunResult:
        """Wait for the process to end and return the result that it wrote."""
        code = self.process.wait(HANG_S)
        result = read_result(self.paths)
        assert result is not None, f"exit {code}: {self.paths.stderr_log.read_text()[-3000:]}"
        return result

    def status(self) -> RunStatus | None:
        """Return the status file."""
        return read_status(self.paths)

    def events(self) -> list[JournalEvent]:
        """Return the journal."""
        return JournalReader(self.paths.events).read_new()

    def event_types(self) -> list[str]:
        """Return the journal's types, in order."""
        return [event.type for event in self.events()]

    def wait_for(self, text: str) -> None:
        """Wait until the child has logged this line."""

        def has_logged() -> bool:
            return self.paths.events.exists() and any(event.data.get("text") == text for event in self.events())

        eventually(has_logged, what=f"the child logs {text!r}: {self.paths.stderr_log.read_text()[-2000:]}")

    def request(self, kind: str = "stop", *, by_signal: int | None = None) -> None:
        """Ask for the end by file, and hurry the runner by a signal where one is given."""
        now_ms = time.time_ns() // 1_000_000
        request = ControlRequest(type=kind, requested_at=now_ms, by=own_identity(), source="a test")
        request_control(self.paths, request)
        if by_signal is not None:
            self.process.send_signal(by_signal)


def execute(settings: Settings, spec: RunSpec, **options: Any) -> tuple[RunnerProcess, RunResult]:
    """Start a runner and wait for its result."""
    process = RunnerProcess(settings, spec, **options)
    return process, process.wait()
