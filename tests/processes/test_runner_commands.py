"""The external-cli engine, with real programs."""

import hashlib
import sys
from pathlib import Path

from pisub.config import Settings
from pisub.protocol.runs import RunState
from pisub.record.model import RunResult
from pisub.runs.spec import RunnerSpec
from tests.support.runner_runs import RunnerProcess, execute, submit


def command(
    settings: Settings, cwd: Path, *argv: str, task: str = "a task", **options: int
) -> tuple[RunnerProcess, RunResult]:
    return execute(
        settings, submit(settings, RunnerSpec(type="external-cli", argv=argv), cwd=cwd, task=task), **options
    )


def test_the_prompt_goes_in_and_the_output_comes_back_byte_for_byte(settings: Settings, tmp_path: Path) -> None:
    task = "-n $(id) 'x' \"y\"\n\\ ü" * 9000
    _, result = command(settings, tmp_path, "cat", task=task)
    assert (result.state, result.output, result.output_path) == (RunState.COMPLETE, task, None)


def test_a_program_that_does_not_read_its_prompt_is_no_failure(settings: Settings, tmp_path: Path) -> None:
    _, result = command(settings, tmp_path, "echo", "hello", task="x" * 1_000_000)
    assert (result.state, result.output) == (RunState.COMPLETE, "hello\n")


def test_an_exit_code_fails_the_run_with_the_end_of_its_errors(settings: Settings, tmp_path: Path) -> None:
    process, result = command(settings, tmp_path, "sh", "-c", "echo partly; echo 'no such cat' >&2; exit 3")
    assert (result.state, result.reason, result.exit_code) == (RunState.FAILED, "exit-code", 1)
    assert result.error == "sh ended with exit code 3. The end of its standard error:\nno such cat"
    assert (result.output, result.results[0].exit_code) == ("partly\n", 3)
    lines = [(e.type, e.data["text"]) for e in process.events() if e.type.startswith("subagent.child")]
    assert sorted(lines) == [("subagent.child.stderr", "no such cat"), ("subagent.child.stdout", "partly")]


def test_a_death_by_signal_is_named(settings: Settings, tmp_path: Path) -> None:
    _, result = command(settings, tmp_path, "sh", "-c", "kill -SEGV $$")
    assert (result.state, result.reason) == (RunState.FAILED, "signal")
    assert result.error == "sh was ended by SIGSEGV."


def test_exit_code_0_without_output_is_no_success(settings: Settings, tmp_path: Path) -> None:
    _, result = command(settings, tmp_path, "true")
    assert (result.state, result.reason) == (RunState.FAILED, "no-output")


def test_a_missing_program_is_a_sentence(settings: Settings, tmp_path: Path) -> None:
    _, result = command(settings, tmp_path, "no-such-program-here")
    assert (result.state, result.reason) == (RunState.FAILED, "program-not-found")
    assert result.error == ("The program 'no-such-program-here' was not found: give its full path, or put it on PATH.")


def test_what_is_not_utf_8_is_replaced_in_the_text_and_kept_in_the_log(settings: Settings, tmp_path: Path) -> None:
    process, result = command(settings, tmp_path, "printf", "a\\377b")
    assert result.output == "a\ufffdb"
    assert process.paths.output(0).read_bytes() == b"a\xffb"


def test_a_grandchild_that_holds_the_output_delays_the_end_by_the_drain_only(
    settings: Settings, tmp_path: Path
) -> None:
    _, result = command(settings, tmp_path, "sh", "-c", "sleep 600 & echo final")
    assert (result.state, result.output, result.cleanup) == (RunState.COMPLETE, "final\n", "proven")
    assert result.duration_ms < 60_000


def test_endless_output_is_cut_in_every_file_and_the_run_goes_on(settings: Settings, tmp_path: Path) -> None:
    script = "import sys\nfor _ in range(3000): sys.stdout.write('x' * 9_999 + '\\n')\nprint('end')"
    process, result = command(settings, tmp_path, sys.executable, "-c", script, max_output_bytes=1_000_000)
    assert result.state is RunState.COMPLETE
    log = process.paths.output(0).read_bytes()
    assert log.endswith(b"\n[pisub: 29000004 more bytes of output were not kept]\n")
    assert len(log) < 1_000_100
    assert result.output_path is not None
    kept = Path(result.output_path).read_bytes()
    assert (len(kept), result.output_sha256) == (1_000_000, hashlib.sha256(kept).hexdigest())
    assert sum(path.stat().st_size for path in process.paths.dir.rglob("*") if path.is_file()) < 6_000_000


def test_the_child_knows_its_run(settings: Settings, tmp_path: Path) -> None:
    process, result = command(settings, tmp_path, "sh", "-c", "echo $PISUB_RUN_ID $PISUB_DEPTH $PISUB_SESSION")
    assert result.output == f"{process.spec.run_id} 1 a-session\n"
