"""A run is ended from outside: whatever its agent does, the record says so and nothing of it is left."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pisub.config import Settings
from pisub.process import identify, own_identity
from pisub.protocol.runs import RunState
from pisub.record.control import request_control
from pisub.record.layout import Layout
from pisub.record.model import ControlRequest, RunResult
from pisub.runs.reconcile import reconcile
from pisub.runs.spec import RunnerSpec
from runner.enforcer import enforce_stop
from tests.support.eventually import eventually
from tests.support.runner_runs import RunnerProcess, execute, python_runner, submit


def stop_when(process: RunnerProcess, text: str, kind: str = "stop") -> RunResult:
    process.wait_for(text)
    process.request(kind, by_signal=signal.SIGUSR2)
    return process.wait()


BLOCKED = {
    "time.sleep": "time.sleep(600)",
    "a tight loop": "while True: pass",
    "C code that lets others run": "hashlib.pbkdf2_hmac('sha256', b'x', b'y', 10**9)",
    "C code that lets nobody run for a moment": "[sum(range(200_000)) for _ in range(10**9)]",
}


@pytest.mark.parametrize("work", BLOCKED.values(), ids=BLOCKED.keys())
@pytest.mark.parametrize("form", ["async def", "def"])
def test_an_agent_that_blocks_its_thread_is_stopped(settings: Settings, tmp_path: Path, work: str, form: str) -> None:
    source = f"""
        import hashlib, time
        {form} main(child):
            child.log("blocking")
            {work}
    """
    process = RunnerProcess(settings, submit(settings, python_runner(tmp_path, source), cwd=tmp_path))
    result = stop_when(process, "blocking")
    assert (result.state, result.reason, result.success, result.exit_code) == (RunState.STOPPED, "stop", False, 1)
    assert result.error == "Stopped by a test."
    status = process.status()
    assert status is not None
    assert (status.state, status.stopped, status.steps[0].status) == (RunState.STOPPED, True, "stopped")
    assert process.event_types()[-3:] == [
        "subagent.run.stopped",
        "subagent.step.stopped",
        "subagent.run.completed",
    ]


def test_an_agent_that_obeys_is_cancelled_and_may_clean_up(settings: Settings, tmp_path: Path) -> None:
    source = """
        import asyncio
        async def main(child):
            child.log("ready")
            try:
                await asyncio.Event().wait()
            finally:
                child.write("cleaned.txt", "yes")
    """
    process = RunnerProcess(
        settings, submit(settings, python_runner(tmp_path, source), cwd=tmp_path, stop_grace_ms=60_000)
    )
    result = stop_when(process, "ready")
    assert (result.state, result.artifacts) == (RunState.STOPPED, ("artifacts/cleaned.txt",))


def test_an_agent_that_ignores_its_cancellation_is_stopped_all_the_same(settings: Settings, tmp_path: Path) -> None:
    source = """
        import asyncio
        async def main(child):
            child.log("ready")
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    child.log("no")
    """
    process = RunnerProcess(settings, submit(settings, python_runner(tmp_path, source), cwd=tmp_path))
    assert stop_when(process, "ready").state is RunState.STOPPED


def test_a_text_returned_after_the_stop_does_not_make_it_a_success(settings: Settings, tmp_path: Path) -> None:
    source = """
        import asyncio
        async def main(child):
            child.log("ready")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "all done"
    """
    process = RunnerProcess(settings, submit(settings, python_runner(tmp_path, source), cwd=tmp_path))
    result = stop_when(process, "ready")
    assert (result.state, result.success, result.output) == (RunState.STOPPED, False, "all done")


def test_a_stop_that_was_there_first_lets_no_agent_begin(settings: Settings, tmp_path: Path) -> None:
    source = """
        import pathlib
        async def main(child):
            pathlib.Path("began").touch()
    """
    spec = submit(settings, python_runner(tmp_path, source), cwd=tmp_path)
    request = ControlRequest(type="stop", requested_at=1, by=own_identity())
    request_control(Layout.of(settings).run(spec.run_id), request)
    _, result = execute(settings, spec)
    assert result.state is RunState.STOPPED
    assert not (tmp_path / "began").exists()


STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if len(sys.argv) > 1 and sys.argv[1] == "session":
    os.setsid()
print("stubborn", os.getpid(), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("session", ["", "session"])
def test_a_grandchild_that_ignores_sigterm_dies_with_the_run(settings: Settings, tmp_path: Path, session: str) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    script = f"{sys.executable} stubborn.py {session} & echo leader; wait"
    runner = RunnerSpec(type="external-cli", argv=("sh", "-c", script))
    process = RunnerProcess(settings, submit(settings, runner, cwd=tmp_path))

    def grandchild() -> int | None:
        texts = [event.data.get("text", "") for event in process.events()] if process.paths.events.exists() else []
        return next((int(text.split()[1]) for text in texts if text.startswith("stubborn")), None)

    pid = eventually(grandchild, what="the grandchild reports")
    identity = identify(pid)
    assert identity is not None
    process.request(by_signal=signal.SIGUSR2)
    result = process.wait()
    assert (result.state, result.cleanup) == (RunState.STOPPED, "proven")
    assert identify(pid) != identity


def test_what_a_program_leaves_behind_at_its_own_end_is_ended_too(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    script = f"{sys.executable} stubborn.py session & read line; echo the answer"
    source = f"""
        import subprocess
        def main(child):
            one = subprocess.Popen(["sh", "-c", {script!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            pid = one.stdout.readline().split()[1]
            one.stdin.write("go\\n")
            one.stdin.close()
            return pid
    """
    _, result = execute(settings, submit(settings, python_runner(tmp_path, source), cwd=tmp_path))
    assert (result.state, result.cleanup) == (RunState.COMPLETE, "proven")
    assert identify(int(result.output)) is None


def test_the_deadline_fails_the_run_as_timed_out(settings: Settings, tmp_path: Path) -> None:
    source = """
        import asyncio
        async def main(child):
            await asyncio.Event().wait()
    """
    process, result = execute(settings, submit(settings, python_runner(tmp_path, source), cwd=tmp_path, timeout_ms=200))
    assert (result.state, result.reason, result.exit_code) == (RunState.FAILED, "timeout", 1)
    status = process.status()
    assert status is not None
    assert (status.timed_out, status.stopped) == (True, False)
    assert "subagent.run.timed_out" in process.event_types()


def test_an_interrupt_pauses_once_everything_is_gone(settings: Settings, tmp_path: Path) -> None:
    source = """
        import asyncio
        async def main(child):
            child.log("ready")
            await asyncio.Event().wait()
    """
    process = RunnerProcess(settings, submit(settings, python_runner(tmp_path, source), cwd=tmp_path))
    result = stop_when(process, "ready", "interrupt")
    assert (result.state, result.success, result.exit_code) == (RunState.PAUSED, False, 0)


def test_sigterm_ends_a_runner_as_a_stop_does(settings: Settings, tmp_path: Path) -> None:
    source = """
        import time
        def main(child):
            child.log("ready")
            time.sleep(600)
    """
    process = RunnerProcess(settings, submit(settings, python_runner(tmp_path, source), cwd=tmp_path))
    process.wait_for("ready")
    process.process.send_signal(signal.SIGTERM)
    result = process.wait()
    assert (result.state, result.reason) == (RunState.STOPPED, "signal")


@pytest.mark.parametrize("end", ["exit", "SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_an_attached_run_ends_with_its_host(settings: Settings, tmp_path: Path, end: str) -> None:
    source = """
        import asyncio
        async def main(child):
            child.log("ready")
            await asyncio.Event().wait()
    """
    waiting = [sys.executable, "-c", "input()"]
    with subprocess.Popen(waiting, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as host:
        identity = identify(host.pid)
        spec = submit(settings, python_runner(tmp_path, source), cwd=tmp_path, attached_to=identity)
        process = RunnerProcess(settings, spec)
        process.wait_for("ready")
        if end == "exit":
            host.communicate(b"\n")
        else:
            host.send_signal(signal.Signals[end])
        result = process.wait()
    assert (result.state, result.reason) == (RunState.STOPPED, "host-gone")


def test_an_agent_that_holds_the_interpreter_is_ended_from_outside_and_still_stopped(
    settings: Settings, tmp_path: Path
) -> None:
    source = """
        def main(child):
            with open("begun", "w"):
                pass
            sum(range(10**12))
    """
    process = RunnerProcess(settings, submit(settings, python_runner(tmp_path, source), cwd=tmp_path))
    eventually((tmp_path / "begun").exists)
    status = process.status()
    assert status is not None
    assert status.state is RunState.RUNNING
    identity = identify(process.process.pid)
    assert identity is not None
    process.request(by_signal=signal.SIGUSR2)
    asked_at = time.time_ns() // 1_000_000
    assert not enforce_stop(process.paths, identity, now_ms=asked_at + 1_000)
    assert enforce_stop(process.paths, identity, now_ms=asked_at + 10_000)
    assert process.process.wait(30) == -signal.SIGKILL
    view = reconcile(Layout.of(settings), process.spec.run_id, now_ms=asked_at + 10_000)
    assert view.result is not None
    assert (view.state, view.result.reason) == (RunState.STOPPED, "stop")


def test_without_a_request_nobody_is_ended_from_outside(settings: Settings, tmp_path: Path) -> None:
    spec = submit(settings, RunnerSpec(type="python", target="x:y"), cwd=tmp_path)
    assert not enforce_stop(Layout.of(settings).run(spec.run_id), own_identity(), now_ms=2**40)
