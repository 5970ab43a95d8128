"""``pisub ps --fleet``, as a user types it."""

from pathlib import Path

import pytest

from pisub.cli.exits import Exit
from tests.support.project import Project, make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


def test_the_fleet_shows_who_is_at_work_in_this_project_and_names_no_run(project: Project) -> None:
    nobody = project.pisub("ps", "--fleet")
    assert (nobody.code, nobody.out) == (0, "Nobody is at work in this session.\n")
    run_id = project.launch("sleep", "a SECRET task", "--label", "the goal")
    other = project.launch("sleep", "a task", "--session", "another")
    shown = project.pisub("ps", "--fleet")
    assert (shown.code, shown.out.splitlines()[0]) == (0, "1 child at work:")
    assert "fleet-1 sleep" in shown.out
    assert "the goal" in shown.out
    assert run_id not in shown.out
    document = project.pisub("ps", "--fleet", "--json").json
    (entry,) = document["fleet"]["entries"]
    assert (document["kind"], entry["key"], entry["agent"], entry["goal"]) == ("fleet", "fleet-1", "sleep", "the goal")
    assert [each["id"] for each in document["asyncSnapshot"]["runs"]] == [run_id]
    assert "SECRET" not in str(document)
    elsewhere = project.pisub("ps", "--fleet", "--json", "--session", "another").json
    assert (elsewhere["sessionId"], [each["id"] for each in elsewhere["asyncSnapshot"]["runs"]]) == ("another", [other])
    for each in (run_id, other):
        assert project.pisub("stop", each).code == 0


def test_the_fleet_takes_no_other_view(project: Project) -> None:
    assert project.pisub("ps", "--fleet", "--tree").code == Exit.USAGE
