"""``pisub wait`` and ``pisub logs --since``, as a user types them."""

import datetime as dt
from pathlib import Path

import pytest

from pisub.cli.exits import Exit
from tests.support.eventually import eventually
from tests.support.project import Project, make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


def test_without_an_id_the_session_s_runs_that_go_on_are_waited_for_and_no_other_s(project: Project) -> None:
    nothing = project.pisub("wait")
    assert (nothing.code, nothing.out) == (0, "")
    assert "nothing to wait for" in nothing.err
    first, second = project.launch("release"), project.launch("release")
    other = project.launch("sleep", "a task", "--session", "another")
    waiting = project.start("wait")
    assert waiting.stderr is not None
    assert waiting.stderr.readline() == b"waiting for 2 runs of this session\n"
    (project.root / "go").touch()
    out, _ = waiting.communicate(timeout=60)
    assert (waiting.returncode, out.decode()) == (0, f"{first} complete\n{second} complete\n")
    assert project.pisub("wait", "--session", "another", "--timeout", "0.1").code == Exit.WAIT_TIMEOUT
    assert project.pisub("stop", other).code == 0


def test_a_run_that_needs_somebody_is_named_and_ends_the_wait_where_that_is_wanted(project: Project) -> None:
    run_id = project.launch("ask")
    needs = project.pisub("wait", run_id, "--attention")
    assert (needs.code, needs.out) == (Exit.NEEDS_YOU, "")
    assert f"run {run_id} needs you: waits for an answer (pisub questions)" in needs.err
    still = project.pisub("wait", run_id, "--timeout", "0.3")
    assert (still.code, still.err.count("needs you")) == (Exit.WAIT_TIMEOUT, 1)
    (row,) = project.pisub("wait", "--any", "--attention", "--json").json["runs"]
    assert (row["runId"], row["attentionReason"]) == (run_id, "waiting_for_human")
    assert project.pisub("stop", run_id).code == 0


def test_logs_since_leave_out_what_happened_before(project: Project) -> None:
    run_id = project.launch("talk")
    assert project.pisub("wait", run_id).code == 0
    every = project.pisub("logs", run_id, "--json").json_lines
    later = every[len(every) // 2]["ts"]
    seconds, milliseconds = divmod(later, 1000)
    moment = f"{_utc(seconds)}.{milliseconds:03d}+00:00"
    assert project.pisub("logs", run_id, "--json", "--since", moment).json_lines == [
        each for each in every if each["ts"] >= later
    ]
    assert project.pisub("logs", run_id, "--since", "1h").out == project.pisub("logs", run_id).out
    assert project.pisub("logs", run_id, "-f", "--since", "2999-01-01T00:00:00Z").out == ""
    wrong = project.pisub("logs", run_id, "--since", "2026-12-01T09:30:00")
    assert (wrong.code, "--since" in wrong.err, "no time zone" in wrong.err) == (Exit.USAGE, True, True)


def test_a_run_that_is_followed_since_a_moment_still_ends_the_look(project: Project) -> None:
    run_id = project.launch("release")
    following = project.start("logs", run_id, "-f", "--since", "10m")
    eventually(lambda: "waiting" in project.pisub("logs", run_id).out, what="the agent runs")
    (project.root / "go").touch()
    out, _ = following.communicate(timeout=60)
    assert (following.returncode, b"waiting" in out) == (0, True)


def _utc(seconds: int) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S")
