"""``pisub sessions``, as a user types it."""

from pathlib import Path

import pytest

from tests.support.project import Project, make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


def test_sessions_say_which_are_live_and_why(project: Project) -> None:
    none = project.pisub("sessions")
    assert (none.code, none.out, none.err) == (0, "", "no sessions\n")
    done = project.launch("echo", "a task", "--session", "quiet")
    assert project.pisub("wait", done).code == 0
    run_id = project.launch("sleep", "a task", "--session", "busy")
    shown = project.pisub("sessions")
    assert [line.split() for line in shown.out.splitlines()] == [
        ["STATE", "RUNS", "HOST", "WHY", "SESSION"],
        ["live", "1", "-", "runs", "busy"],
        ["idle", "-", "-", "-", "quiet"],
    ]
    live = project.pisub("sessions", "--live", "--json").json
    assert live["sessions"] == [
        {"sessionId": "busy", "isLive": True, "reasons": ["runs"], "activeRuns": [run_id], "hostPid": None}
    ]
    one = project.pisub("sessions", "--json", "--session", "quiet").json
    assert [(each["sessionId"], each["isLive"]) for each in one["sessions"]] == [("quiet", False)]
    assert project.pisub("sessions", "--live", "--session", "quiet").err == "no live sessions\n"
    assert project.pisub("stop", run_id).code == 0
