"""Trees and caps as a user sees them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pisub.cli.exits import Exit
from pisub.cli.summary import RunSummary
from pisub.cli.tree import grow
from pisub.protocol.runs import RunState
from pisub.record.layout import Layout
from tests.support.nesting import as_task, children_of, end_of, make_family, plan, started_below
from tests.support.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_family(tmp_path / "project")


def test_a_tree_is_drawn_shown_and_stopped_as_one(project: Project) -> None:
    layout = Layout.of(project.settings)
    environ = {"PISUB_MAX_DEPTH": "3"}
    task = as_task(plan(("parent", plan(("sleep", "x"))), ("sleep", "y"), do="sleep"))
    launched = project.pisub("run", "parent", task, "-d", "--session", "s", environ=environ)
    assert launched.code == 0, launched.err
    top = launched.out.strip()
    below = started_below(layout, top, 3)
    nested, other = children_of(layout, top)
    (grandchild,) = children_of(layout, nested)

    (root,) = project.pisub("ps", "--tree", "--json").json["runs"]
    assert (root["runId"], root["parentRunId"], root["depth"], root["omittedChildren"]) == (top, None, 0, 0)
    drawn = {each["runId"]: [child["runId"] for child in each["children"]] for each in root["children"]}
    assert drawn == {nested: [grandchild], other: []}
    lines = project.pisub("ps", "--tree").out.splitlines()
    assert [line[: len(line) - len(line.lstrip(" └"))] for line in lines[1:]].count("└ ") == 2

    shown = project.pisub("show", top, "--json").json
    assert (shown["spawned"], shown["maxSubagentSpawnsPerRun"]) == (3, {"used": 3, "limit": 64})
    assert {each["runId"] for each in shown["children"]} == {each["runId"] for each in root["children"]}
    assert "3 of 64 in its tree" in project.pisub("show", top).out

    stopped = project.pisub("stop", top, "--tree", "--json").json
    assert (stopped["runId"], stopped["state"], stopped["wasOver"]) == (top, "stopped", False)
    assert {each["runId"] for each in stopped["below"]} <= set(below)
    assert [end_of(layout, each) for each in below] == [("stopped", "ancestor-stop")] * 3


def test_what_outlived_the_run_that_started_it_is_stopped_with_the_tree_and_not_without(project: Project) -> None:
    layout = Layout.of(project.settings)
    top = project.launch("parent", as_task(plan(("sleep", "x"), do="leave")))
    assert project.pisub("wait", top).code == 0
    (below,) = started_below(layout, top, 1)
    assert project.pisub("stop", top).code == 0
    assert end_of(layout, below) is None
    said = project.pisub("stop", top, "--tree")
    assert (said.code, said.out.splitlines()) == (0, [f"{below} stopped", f"{top} complete"])
    assert end_of(layout, below) == ("stopped", "ancestor-stop")


def test_a_cap_that_is_reached_is_an_error_with_figures_and_a_grant_is_the_way_on(project: Project) -> None:
    environ = {"PISUB_MAX_SPAWNS_PER_SESSION": "1"}
    again = ("run", "echo", "x", "-d", "--session", "s", "--json")
    assert project.pisub("caps", "--session", "s", "--grant", "1").code == Exit.REFUSED
    assert project.pisub(*again, environ=environ).code == 0
    refused = project.pisub(*again)  # the session keeps the cap that its first run found
    assert refused.code == Exit.REFUSED
    error = refused.json
    assert (error["code"], error["used"], error["limit"], error["path"]) == ("session_spawn_limit", 1, 1, "task")
    caps = project.pisub("caps", "--session", "s", "--grant", "1", "--json").json
    budget = caps["maxSubagentSpawnsPerSession"]
    assert (budget["used"], budget["limit"], budget["granted"]) == (1, 2, 1)
    assert project.pisub(*again).code == 0
    assert "2 of 2" in project.pisub("caps", "--session", "s").out
    assert project.pisub("caps", "--session", "s", "--grant", "1").code == Exit.USAGE
    # What has ended is gone on with at any count.
    run_id = refused_free_run(project)
    assert project.pisub("wait", run_id).code == 0
    assert project.pisub("resume", "-d", run_id, "again").code == 0


def refused_free_run(project: Project) -> str:
    rows = project.pisub("ps", "-a", "--session", "s", "--json").json["runs"]
    return str(rows[0]["runId"])


def test_delegation_that_is_turned_off_says_by_which_setting(project: Project) -> None:
    refused = project.pisub("run", "echo", "x", "-d", "--json", environ={"PISUB_MAX_DEPTH": "0"})
    assert refused.code == Exit.REFUSED
    assert refused.json["code"] == "depth_exceeded"
    assert "PISUB_MAX_DEPTH" in refused.err


@pytest.mark.parametrize("name", ["PISUB_MAX_DEPTH", "PISUB_MAX_SPAWNS_PER_SESSION", "PISUB_PARALLEL_CONCURRENCY"])
@pytest.mark.parametrize("value", ["-1", "many", "1.5"])
def test_a_cap_that_is_no_count_is_refused_by_its_name(project: Project, name: str, value: str) -> None:
    refused = project.pisub("ps", environ={name: value})
    assert refused.code == Exit.USAGE
    assert name in refused.err


def test_a_tree_is_drawn_sixteen_wide_and_three_levels_deep() -> None:
    def run(run_id: str, parent: str | None) -> RunSummary:
        blank = dict.fromkeys(RunSummary.__struct_fields__)
        values = blank | {"run_id": run_id, "parent_run_id": parent, "state": RunState.RUNNING}
        return RunSummary(**values)  # type: ignore[arg-type]  # only the ids matter here

    wide = [run("a", None), *(run(f"a{number:02d}", "a") for number in range(20))]
    deep = [run("b", None), run("c", "b"), run("d", "c"), run("e", "d"), run("f", "e")]
    first, second = grow([*wide, *deep])
    assert ([each.summary.run_id for each in first.children], first.omitted) == ([f"a{n:02d}" for n in range(16)], 4)
    walked = [(level, each if isinstance(each, int) else each.run_id) for level, each in second.walk()]
    assert walked == [(0, "b"), (1, "c"), (2, "d"), (3, "e"), (4, 1)]
    assert msgspec.json.encode(second.document()).count(b'"omittedChildren":1') == 1
