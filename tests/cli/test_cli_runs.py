"""Runs, as a user sees them who never started a broker."""

import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from pisub.cli.exits import Exit
from pisub.launch import find_broker
from pisub.record.layout import Layout
from tests.support.eventually import eventually
from tests.support.project import Project, make_project

NASTY = "-x \"quoted\" 'single' $(touch /tmp/never) `id` \\ \t line\nnext\r\n\x00é😀 " + "payload " * 25_000


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


def test_a_detached_run_prints_its_id_alone_and_what_to_try_on_standard_error(project: Project) -> None:
    launched = project.pisub("run", "echo", "hello", "-d", "--label", "mine")
    run_id = launched.out.removesuffix("\n")
    assert (launched.code, len(run_id)) == (0, 26)
    assert f"pisub logs -f {run_id}" in launched.err
    assert project.pisub("wait", run_id[:20]).out == f"{run_id} complete\n"
    assert project.pisub("result", run_id).out == "hello\n"
    assert project.pisub("ps").out == ""
    (row,) = project.pisub("ps", "-a", "--json").json["runs"]
    assert (row["runId"], row["state"], row["agent"], row["label"]) == (run_id, "complete", "echo", "mine")


def test_the_foreground_prints_the_text_on_standard_output_and_all_else_on_standard_error(project: Project) -> None:
    outcome = project.pisub("run", "talk", "now")
    assert (outcome.code, outcome.out) == (0, "talked\n")
    for piece in ("started", "first line", "→ count(upto=3)", "wrote notes/one.md (6 bytes)", "complete"):
        assert piece in outcome.err


def test_the_exit_code_follows_the_run(project: Project) -> None:
    assert project.pisub("run", "fail", "x").code == Exit.FAILED
    assert project.pisub("run", "sleep", "x", "--timeout", "0.3").code == Exit.TIMED_OUT
    run_id = project.launch("fail")
    assert project.pisub("wait", run_id).code == Exit.FAILED
    shown = project.pisub("result", run_id)
    assert (shown.code, shown.out) == (Exit.FAILED, "")
    assert shown.err.startswith(f"pisub: error: run {run_id} failed: ValueError: the agent broke\n")


@pytest.mark.parametrize("way", ["-", "--task-file"])
def test_a_long_and_nasty_task_arrives_byte_for_byte_and_is_in_no_process_s_arguments(
    project: Project, way: str, tmp_path: Path
) -> None:
    if way == "-":
        outcome = project.pisub("run", "echo", "-", "--json", stdin=NASTY)
    else:
        (tmp_path / "task.txt").write_bytes(NASTY.encode())
        outcome = project.pisub("run", "echo", "--task-file", str(tmp_path / "task.txt"), "--json")
    assert outcome.code == 0, outcome.err
    result = outcome.json
    spec = project.pisub("show", result["runId"], "--json").json["spec"]
    assert spec["task"] == NASTY
    assert result["output"] == NASTY


def test_a_task_that_is_not_utf_8_or_is_not_there_is_refused(project: Project, tmp_path: Path) -> None:
    for outcome in (
        project.pisub("run", "echo", "-", stdin=b"\xff\xfe"),
        project.pisub("run", "echo"),
        project.pisub("run", "echo", "one", "--task-file", "two"),
        project.pisub("run", "echo", "--task-file", str(tmp_path / "missing")),
        project.pisub("run", "echo", "-", stdin=" \n"),
    ):
        assert outcome.code == Exit.USAGE
        assert outcome.out == ""
        assert outcome.err.startswith("pisub: error: ")


def test_a_sleeping_run_is_listed_followed_and_stopped(project: Project) -> None:
    run_id = project.launch("sleep")
    follower = project.start("logs", "-f", run_id)
    eventually(lambda: "asleep" in project.pisub("logs", run_id).out, what="the agent says that it sleeps")
    listed = project.pisub("ps")
    assert run_id[:8] in listed.out
    assert "running" in listed.out
    assert project.pisub("wait", run_id, "--timeout", "0.1").code == Exit.WAIT_TIMEOUT
    assert project.pisub("result", run_id).code == Exit.NOT_FINISHED
    stopped = project.pisub("stop", run_id, "--reason", "enough")
    assert (stopped.code, stopped.out) == (0, f"{run_id} stopped\n")
    out, _ = follower.communicate(timeout=20)
    assert follower.returncode == 0
    assert out.decode().splitlines()[-1].endswith("stopped")
    assert project.pisub("result", run_id).code == Exit.STOPPED
    assert project.pisub("stop", run_id, "--json").json["wasOver"] is True


def test_a_blocked_agent_is_stopped_within_the_grace(project: Project) -> None:
    run_id = project.launch("block")
    eventually(lambda: "blocked" in project.pisub("logs", run_id).out, what="the agent blocks")
    assert project.pisub("stop", run_id).out == f"{run_id} stopped\n"


def test_a_killed_runner_is_failed_with_its_signal_at_the_next_look(project: Project) -> None:
    run_id = project.launch("sleep")
    eventually(lambda: "asleep" in project.pisub("logs", run_id).out, what="the agent says that it sleeps")
    (row,) = project.pisub("ps", "--json").json["runs"]
    os.kill(row["pid"], signal.SIGKILL)
    eventually(lambda: project.pisub("ps").out == "", what="nothing is live", within_s=5)
    (row,) = project.pisub("ps", "-a", "--json").json["runs"]
    assert (row["state"], row["reason"]) == ("failed", "SIGKILL")
    assert project.pisub("wait", run_id).code == Exit.FAILED


def test_ctrl_c_stops_a_foreground_run(project: Project) -> None:
    process = project.start("run", "sleep", "x")
    assert process.stderr is not None
    seen = b""
    while b"asleep" not in seen:
        line = process.stderr.readline()
        assert line, seen
        seen += line
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (Exit.STOPPED, b"")
    assert b"stopping" in err
    (row,) = project.pisub("ps", "-a", "--json").json["runs"]
    assert row["state"] == "stopped"


def test_a_second_ctrl_c_leaves_at_once_and_the_run_ends_by_itself(project: Project) -> None:
    process = project.start("run", "block", "x")
    assert process.stderr is not None
    for text in (b"blocked", b"stopping"):
        line = b""
        while text not in line:
            line = process.stderr.readline()
            assert line
        process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == Exit.INTERRUPTED
    eventually(lambda: project.pisub("ps").out == "", what="nothing is live")
    (row,) = project.pisub("ps", "-a", "--json").json["runs"]
    assert row["state"] == "stopped"


def test_an_attached_run_ends_with_the_terminal_that_was_killed(project: Project) -> None:
    process = project.start("run", "sleep", "x")
    eventually(lambda: "asleep" in _logs_of_only_run(project), what="the agent says that it sleeps")
    process.kill()
    process.communicate()
    eventually(lambda: project.pisub("ps").out == "", what="nothing is live", within_s=8)
    (row,) = project.pisub("ps", "-a", "--json").json["runs"]
    assert row["state"] in {"stopped", "failed"}


def _logs_of_only_run(project: Project) -> str:
    rows = project.pisub("ps", "--json").json["runs"]
    return project.pisub("logs", rows[0]["runId"]).out if rows else ""


def test_waiting_for_any_returns_at_the_first_end(project: Project) -> None:
    sleeper, quick = project.launch("sleep"), project.launch("echo")
    assert project.pisub("wait", sleeper, quick, "--any").out == f"{quick} complete\n"
    assert project.pisub("stop", sleeper).code == 0
    both = project.pisub("wait", sleeper, quick)
    assert (both.code, both.out) == (Exit.STOPPED, f"{sleeper} stopped\n{quick} complete\n")


def test_reading_and_launching_start_no_broker(project: Project) -> None:
    for arguments in (("ps",), ("questions",), ("doctor",), ("agents",)):
        assert project.pisub(*arguments).code == 0
    assert find_broker(project.settings) is None


def test_everything_on_disk_is_private_whatever_the_umask(project: Project, private_places: Path) -> None:
    before = os.umask(0)
    try:
        project.pisub("wait", project.launch("talk"))
    finally:
        os.umask(before)
    for top in (private_places / "home", private_places / "run"):
        for path in (top, *top.rglob("*")):
            mode = stat.S_IMODE(path.lstat().st_mode)
            if path.is_dir():
                assert mode == 0o700, path
            elif path.is_file():
                assert mode == 0o600, path


def test_the_same_agent_of_a_project_needs_trust_once(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", is_trusted=False)
    refused = project.pisub("run", "echo", "x", "-d")
    assert refused.code == Exit.UNTRUSTED
    assert "pisub trust" in refused.err
    assert project.pisub("trust", str(project.root)).code == Exit.USAGE
    trusted = project.pisub("trust", str(project.root), "--yes")
    assert trusted.code == 0
    assert "python: agents_of_mine:echo" in trusted.err
    assert project.pisub("run", "echo", "x").out == "x\n"
    (project.root / ".pisub" / "agents" / "new.md").write_text("---\nname: new\ndescription: d\n---\n")
    assert project.pisub("run", "echo", "x").code == Exit.UNTRUSTED


def test_no_process_carries_a_task_in_its_arguments_or_environment(project: Project) -> None:
    needle = b"needle-4711-in-the-task"
    run_id = project.pisub("run", "release", "-", "-d", stdin=b"find the " + needle).out.strip()
    eventually(lambda: "waiting" in project.pisub("logs", run_id).out, what="the agent runs")
    carriers = [path for path in Path("/proc").glob("[0-9]*/cmdline") if needle in _read(path)]
    carriers += [path for path in Path("/proc").glob("[0-9]*/environ") if needle in _read(path)]
    assert carriers == []
    (project.root / "go").touch()
    assert project.pisub("wait", run_id).code == 0


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # gone meanwhile, or another user's
        return b""


def test_a_user_s_own_modules_of_our_names_do_no_harm(project: Project) -> None:
    plant(project.root, "broker", "runner")
    here = project.pisub("run", "echo", "x", environ={"PYTHONPATH": str(project.root)})
    assert (here.code, here.out) == (0, "x\n"), here.err
    plant(project.root, "zmq", "msgspec", "asyncio", "pisub")
    there = project.pisub("run", "echo", "x", "--cwd", str(project.root), cwd=project.root.parent)
    assert (there.code, there.out) == (0, "x\n"), there.err
    assert list(project.root.glob("harm-*")) == []


def plant(directory: Path, *names: str) -> None:
    for name in names:
        harm = f"open({str(directory / f'harm-{name}')!r}, 'w').close()"
        (directory / f"{name}.py").write_text(f"{harm}\nraise SystemExit('not yours')\n")


def test_a_client_that_is_killed_at_any_point_of_a_launch_leaves_a_run_or_a_failure(project: Project) -> None:
    for number in range(16):
        process = project.start("run", "echo", "x", "-d")
        try:
            process.communicate(timeout=0.04 + number * 0.015)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
    eventually(lambda: project.pisub("ps").out == "", what="nothing is queued or running")
    rows = project.pisub("ps", "-a", "--json").json["runs"]
    assert {(row["state"], row["reason"]) for row in rows} <= {("complete", None), ("failed", "never-started")}


def test_show_says_what_was_used_and_how_the_process_was_seen_to_end(project: Project) -> None:
    run_id = project.launch("echo")
    assert project.pisub("wait", run_id).code == 0
    proven = Layout.of(project.settings).run(run_id).process_terminal
    eventually(proven.exists, what="the end of its process is on record")
    lines = dict(line.split("  ", 1) for line in project.pisub("show", run_id).out.splitlines() if "  " in line)
    assert lines["seen to end"].strip().startswith("exit code 0, ")
    assert lines["seen to end"].strip().endswith(" MiB")
