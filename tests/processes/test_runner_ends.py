"""How runs end, with a real runner process and real agents."""

import hashlib
from pathlib import Path

from pisub.config import Settings
from pisub.launch import find_broker
from pisub.launchers.local import LocalLauncher
from pisub.process import Liveness, liveness
from pisub.protocol.runs import RunState
from pisub.record.layout import Layout
from pisub.record.results import read_result
from pisub.runs.spec import RunnerSpec
from tests.support.eventually import eventually
from tests.support.runner_runs import RunnerProcess, execute, launch_message, python_runner, submit


def test_an_agent_s_text_is_the_run_s_output(settings: Settings, tmp_path: Path) -> None:
    source = """
        async def main(child):
            child.log("at work")
            with child.tool("read", path="x"):
                pass
            child.write("notes/a.md", "# Notes")
            return f"done: {child.task}"
    """
    process, result = execute(settings, submit(settings, python_runner(tmp_path, source), cwd=tmp_path, task="count"))
    assert (result.state, result.success, result.exit_code, result.output) == (
        RunState.COMPLETE,
        True,
        0,
        "done: count",
    )
    assert result.artifacts == ("artifacts/notes/a.md",)
    assert process.event_types() == [
        "subagent.run.started",
        "subagent.step.started",
        "subagent.child.log",
        "subagent.tool.started",
        "subagent.tool.completed",
        "subagent.artifact.written",
        "subagent.step.completed",
        "subagent.run.completed",
    ]
    status = process.status()
    assert status is not None
    assert (status.state, status.tool_count, status.steps[0].status) == (RunState.COMPLETE, 1, "complete")
    assert process.process.returncode == 0


def test_an_exception_of_the_agent_fails_the_run_with_its_type_its_words_and_where(
    settings: Settings, tmp_path: Path
) -> None:
    source = """
        async def main(child):
            raise ValueError("the cat is out")
    """
    process, result = execute(settings, submit(settings, python_runner(tmp_path, source), cwd=tmp_path))
    assert (result.state, result.reason, result.exit_code) == (RunState.FAILED, "agent-error", 1)
    assert result.error is not None
    assert result.error.startswith("ValueError: the cat is out\n")
    assert 'raise ValueError("the cat is out")' in result.error
    assert "the cat" not in process.paths.stderr_log.read_text()


def test_a_missing_module_is_named_together_with_the_target_that_needs_it(settings: Settings, tmp_path: Path) -> None:
    runner = python_runner(tmp_path, "import no_such_module_here\ndef main(child): return 'x'")
    _, result = execute(settings, submit(settings, runner, cwd=tmp_path))
    assert (result.state, result.reason) == (RunState.FAILED, "import-error")
    assert result.error is not None
    assert runner.target in result.error
    assert "needs the module 'no_such_module_here'" in result.error


def test_a_module_is_found_in_the_agent_s_project_before_anything_else(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "json_helper_of_the_project.py").write_text("def main(child): return 'from the project'")
    runner = RunnerSpec(type="python", target="json_helper_of_the_project:main", import_paths=(str(tmp_path),))
    _, result = execute(settings, submit(settings, runner, cwd=tmp_path))
    assert (result.state, result.output) == (RunState.COMPLETE, "from the project")


def test_white_space_without_a_file_is_no_success_and_with_a_file_is_one(settings: Settings, tmp_path: Path) -> None:
    silent = python_runner(tmp_path, "async def main(child): return '  \\n'")
    _, result = execute(settings, submit(settings, silent, cwd=tmp_path))
    assert (result.state, result.reason) == (RunState.FAILED, "no-output")
    writer = python_runner(tmp_path, "async def main(child): child.write('a.txt', 'x')")
    _, result = execute(settings, submit(settings, writer, cwd=tmp_path))
    assert (result.state, result.artifacts) == (RunState.COMPLETE, ("artifacts/a.txt",))


def test_a_working_directory_that_is_gone_fails_the_run_with_a_sentence(settings: Settings, tmp_path: Path) -> None:
    runner = python_runner(tmp_path, "async def main(child): return 'x'")
    _, result = execute(settings, submit(settings, runner, cwd=tmp_path / "gone"))
    assert (result.state, result.reason) == (RunState.FAILED, "bad-cwd")
    assert result.error is not None
    assert "cannot be entered" in result.error


def test_a_task_of_200_kb_arrives_byte_for_byte_and_is_in_no_argv_and_no_environment(
    settings: Settings, tmp_path: Path
) -> None:
    task = "-rf $(touch /tmp/x) 'quoted' \"double\"\n\\ü\0" * 5000
    source = """
        import hashlib, pathlib
        async def main(child):
            places = b"".join(pathlib.Path(f"/proc/self/{name}").read_bytes() for name in ("cmdline", "environ"))
            assert b"touch /tmp" not in places
            return hashlib.sha256(child.task.encode()).hexdigest()
    """
    _, result = execute(settings, submit(settings, python_runner(tmp_path, source), cwd=tmp_path, task=task))
    assert result.output == hashlib.sha256(task.encode()).hexdigest()


def test_one_run_id_given_to_two_processes_runs_once(settings: Settings, tmp_path: Path) -> None:
    source = """
        import os, pathlib
        async def main(child):
            with open("ran", "a") as file:
                file.write(f"{os.getpid()}\\n")
            return "once"
    """
    spec = submit(settings, python_runner(tmp_path, source), cwd=tmp_path)
    both = [RunnerProcess(settings, spec), RunnerProcess(settings, spec)]
    assert [process.wait().output for process in both] == ["once", "once"]
    third, _ = execute(settings, spec)
    assert [process.process.returncode for process in (*both, third)] == [0, 0, 0]
    assert len((tmp_path / "ran").read_text().splitlines()) == 1


def test_a_result_too_long_for_its_file_is_a_preview_a_path_and_a_digest(settings: Settings, tmp_path: Path) -> None:
    source = """
        async def main(child):
            return "é" * 1_000_000
    """
    _, result = execute(settings, submit(settings, python_runner(tmp_path, source), cwd=tmp_path))
    whole = ("é" * 1_000_000).encode()
    assert result.output_path is not None
    assert Path(result.output_path).read_bytes() == whole
    assert (result.output_bytes, result.output_sha256) == (len(whole), hashlib.sha256(whole).hexdigest())
    assert whole.decode().startswith(result.output)
    assert len(result.output.encode()) == 256 * 1024


def test_without_any_broker_a_run_completes(settings: Settings, tmp_path: Path) -> None:
    # A file in the place of the runtime directory: no broker can be found, and none can be started.
    assert settings.runtime_dir is not None
    settings.runtime_dir.write_text("not a directory")
    runner = python_runner(tmp_path, "async def main(child): return 'alone'")
    _, result = execute(settings, submit(settings, runner, cwd=tmp_path))
    assert (result.state, result.output) == (RunState.COMPLETE, "alone")


def test_files_are_private_whatever_the_umask(settings: Settings, tmp_path: Path) -> None:
    source = """
        import os
        async def main(child):
            os.umask(0)
            child.write("deep/a.txt", "x")
            return "y" * 300_000
    """
    process, _ = execute(settings, submit(settings, python_runner(tmp_path, source), cwd=tmp_path))
    modes = {path.stat().st_mode & 0o777 for path in process.paths.dir.rglob("*") if path.is_file()}
    directories = {path.stat().st_mode & 0o777 for path in process.paths.dir.rglob("*") if path.is_dir()}
    assert (modes, directories) == ({0o600}, {0o700})


def test_a_thread_that_the_agent_left_behind_does_not_keep_the_run(settings: Settings, tmp_path: Path) -> None:
    source = """
        import asyncio, threading, time
        async def main(child):
            threading.Thread(target=time.sleep, args=(600,)).start()
            asyncio.get_running_loop().run_in_executor(None, time.sleep, 600)
            return "left a thread"
    """
    _, result = execute(settings, submit(settings, python_runner(tmp_path, source), cwd=tmp_path))
    assert (result.state, result.output) == (RunState.COMPLETE, "left a thread")


def test_the_broker_that_a_run_happened_to_start_outlives_it(settings: Settings, tmp_path: Path) -> None:
    source = """
        import asyncio, json, os, pathlib
        async def main(child):
            info = pathlib.Path(os.environ["PISUB_RUNTIME_DIR"]) / "broker.json"
            while not info.exists():
                await asyncio.sleep(0.01)
            return "there is a broker"
    """
    assert find_broker(settings) is None
    _, result = execute(settings, submit(settings, python_runner(tmp_path, source), cwd=tmp_path))
    assert (result.output, result.cleanup) == ("there is a broker", "proven")
    broker = find_broker(settings)
    assert broker is not None
    assert liveness(broker.process) is Liveness.ALIVE


def test_a_disk_that_refuses_for_a_while_delays_the_end_and_changes_nothing(settings: Settings, tmp_path: Path) -> None:
    # A directory in the place of the pending result: what a full disk does, for a user who is root too.
    source = """
        import pathlib
        async def main(child):
            pathlib.Path("ready").touch()
            while not pathlib.Path("go").exists():
                pass
            return "at last"
    """
    process = RunnerProcess(settings, submit(settings, python_runner(tmp_path, source), cwd=tmp_path))
    eventually((tmp_path / "ready").exists)
    blocker = process.paths.pending_result
    blocker.mkdir()
    (tmp_path / "go").touch()
    eventually(lambda: "end_not_written" in process.paths.stderr_log.read_text())
    blocker.rmdir()
    result = process.wait()
    assert (result.state, result.output) == (RunState.COMPLETE, "at last")


def test_the_program_itself_carries_out_a_run(settings: Settings, tmp_path: Path) -> None:
    spec = submit(settings, python_runner(tmp_path, "async def main(child): return 'as a program'"), cwd=tmp_path)
    launched = LocalLauncher(settings).launch_blocking(launch_message(settings, spec))
    paths = Layout.of(settings).run(spec.run_id)
    result = eventually(lambda: read_result(paths), what="the launched run ends")
    assert (result.state, result.output) == (RunState.COMPLETE, "as a program")
    assert launched.process.pid > 0


def test_a_worker_that_the_agent_forks_and_terminates_is_its_own_affair(settings: Settings, tmp_path: Path) -> None:
    source = """
        import multiprocessing, time
        def main(child):
            ends = set()
            for _ in range(50):  # the signal often comes before the worker has run a line
                worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
                worker.start()
                worker.terminate()
                worker.join()
                ends.add(worker.exitcode)
            return f"workers ended by {ends}"
    """
    _, result = execute(settings, submit(settings, python_runner(tmp_path, source), cwd=tmp_path))
    assert (result.state, result.output) == (RunState.COMPLETE, "workers ended by {-15}")
