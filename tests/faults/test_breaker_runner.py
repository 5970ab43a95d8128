"""Agents and disks at their worst: the run ends, with its own result, and says what happened."""

import shutil
import signal
from pathlib import Path

import msgspec
import pytest

from pisub.config import Settings
from pisub.launchers.local import LocalLauncher
from pisub.protocol.runs import RunState
from pisub.record.atomic import exists
from pisub.record.layout import Layout
from pisub.record.reader import read_run
from pisub.record.results import read_result
from pisub.runs.reconcile import reconcile_all
from tests.support.eventually import HANG_S, eventually
from tests.support.runner_runs import RunnerProcess, execute, launch_message, python_runner, submit


def test_standard_error_on_a_full_disk_costs_the_log_and_nothing_else(settings: Settings, tmp_path: Path) -> None:
    spec = submit(settings, python_runner(tmp_path, "def main(child): return 'done'"), cwd=tmp_path)
    _, result = execute(settings, spec, stderr=Path("/dev/full"))
    assert (result.state, result.output) == (RunState.COMPLETE, "done")


def test_an_agent_that_closes_its_streams_ends_as_any_other(settings: Settings, tmp_path: Path) -> None:
    source = """
        import sys
        def main(child):
            sys.stderr.close()
            sys.stdout.close()
            return "done"
    """
    process, result = execute(settings, submit(settings, python_runner(tmp_path, source), cwd=tmp_path))
    assert (result.state, result.output) == (RunState.COMPLETE, "done")
    assert "run_ended" in process.paths.stderr_log.read_text()


@pytest.mark.parametrize("limit", ["NOFILE", "FSIZE"])
def test_a_limit_that_an_agent_lowers_for_itself_costs_the_run_nothing(
    settings: Settings, tmp_path: Path, limit: str
) -> None:
    source = f"""
        import resource
        def main(child):
            resource.setrlimit(resource.RLIMIT_{limit}, (3, resource.getrlimit(resource.RLIMIT_{limit})[1]))
            return "done"
    """
    _, result = execute(settings, submit(settings, python_runner(tmp_path, source), cwd=tmp_path))
    assert (result.state, result.output) == (RunState.COMPLETE, "done")


_FOR_GOOD = {
    "descriptors": "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))",
    "file size": "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))",
    "closed": "os.closerange(3, 1000)",
}


@pytest.mark.parametrize("nursery", [True, False], ids=["nursery", "exec"])
@pytest.mark.parametrize("what", _FOR_GOOD.values(), ids=_FOR_GOOD.keys())
def test_a_runner_that_its_agent_has_crippled_leaves_and_its_end_is_on_record_by_others(
    settings: Settings, tmp_path: Path, what: str, nursery: bool
) -> None:
    source = f"""
        import os, resource
        def main(child):
            {what}
            return "done"
    """
    spec = submit(settings, python_runner(tmp_path, source), cwd=tmp_path)
    launcher = LocalLauncher(msgspec.structs.replace(settings, nursery=nursery))
    launcher.launch_blocking(launch_message(settings, spec))
    paths = Layout.of(settings).run(spec.run_id)
    result = eventually(lambda: read_result(paths), what="a coroner writes the end")
    assert result is not None
    # libzmq aborts the process where it finds its own descriptor closed first.
    assert (result.state, result.reason in {"record-refused", "runner-died"}) == (RunState.FAILED, True)
    if "closerange" not in what:
        assert result.reason == "record-refused"
        assert (result.error or "").startswith("The runner could not write how it ended, and left without")
    layout = Layout.of(settings)
    eventually(lambda: not read_run(layout, spec.run_id).needs_reconcile, what="its record is finished")


@pytest.mark.parametrize("error", ["BaseException('x')", "GeneratorExit('x')", "SystemExit(0)", "KeyboardInterrupt()"])
def test_whatever_an_agent_raises_is_the_agent_s_error(settings: Settings, tmp_path: Path, error: str) -> None:
    spec = submit(settings, python_runner(tmp_path, f"async def main(child): raise {error}"), cwd=tmp_path)
    _, result = execute(settings, spec)
    assert (result.state, result.reason) == (RunState.FAILED, "agent-error")
    assert (result.error or "").startswith(error.partition("(")[0])


def test_half_a_character_in_an_error_does_not_cost_the_run_its_end(settings: Settings, tmp_path: Path) -> None:
    source = """
        def main(child):
            raise ValueError("half \\ud800 a character")
    """
    _, result = execute(settings, submit(settings, python_runner(tmp_path, source), cwd=tmp_path))
    assert (result.state, result.reason) == (RunState.FAILED, "agent-error")
    assert (result.error or "").startswith("ValueError: half ? a character\n")


def test_an_agent_that_the_news_of_its_stop_wakes_from_c_code_was_stopped(settings: Settings, tmp_path: Path) -> None:
    # pause() returns as soon as any signal was handled; the request was in its slot before that.
    source = """
        import ctypes
        def main(child):
            child.log("ready")
            ctypes.CDLL(None).pause()
            return "woken"
    """
    spec = submit(settings, python_runner(tmp_path, source), cwd=tmp_path, stop_grace_ms=5_000)
    process = RunnerProcess(settings, spec)
    process.wait_for("ready")
    process.request(by_signal=signal.SIGUSR2)
    result = process.wait()
    assert (result.state, result.reason, result.output) == (RunState.STOPPED, "stop", "woken")


def test_a_run_whose_directory_is_removed_ends_and_is_forgotten(settings: Settings, tmp_path: Path) -> None:
    source = """
        import asyncio
        async def main(child):
            child.log("ready")
            await asyncio.sleep(600)
    """
    layout = Layout.of(settings)
    process = RunnerProcess(settings, submit(settings, python_runner(tmp_path, source), cwd=tmp_path))
    process.wait_for("ready")
    shutil.rmtree(process.paths.dir)
    process.process.send_signal(signal.SIGUSR2)  # else it looks within five seconds
    assert process.process.wait(HANG_S) == 0
    assert reconcile_all(layout, now_ms=1) == []
    assert not exists(layout.active / process.spec.run_id)
