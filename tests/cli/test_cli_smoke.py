"""``pisub smoke``: what it prints, that it leaves nothing, and that it can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from pisub.cli.commands.smoke import Scenario
from pisub.cli.exits import Exit
from tests.support.project import Project, make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project", is_trusted=False)


@pytest.mark.parametrize("nursery", ["1", "0"])
def test_three_scenarios_pass_and_nothing_is_left(project: Project, tmp_path: Path, nursery: str) -> None:
    temporary = tmp_path / "t"
    temporary.mkdir()
    outcome = project.pisub("smoke", environ={"TMPDIR": str(temporary), "PISUB_NURSERY": nursery})
    assert (outcome.code, outcome.err) == (Exit.OK, "")
    assert outcome.out.splitlines() == [
        "ok     hosted relay ok right heron; dialogs: Which?, Token of hosted?",
        "ok     local host   ok left otter; dialogs: Which?, Token of local?",
        "ok     no host      no-host None None",
    ]
    assert list(temporary.iterdir()) == []
    assert project.pisub("ps", "-a", "--json").json["runs"] == [], "the user's own state is not touched"


def test_a_scenario_is_right_exactly_when_what_was_seen_is_what_was_wanted() -> None:
    assert Scenario("a", "ok", "ok").is_right
    assert not Scenario("a", "ok", "no-host None").is_right
