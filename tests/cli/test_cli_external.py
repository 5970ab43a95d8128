"""``pisub external``, as a user types it."""

import asyncio
from pathlib import Path

import pisub
from pisub.cli.exits import Exit
from pisub.testing import ScriptedHuman
from tests.support.project import Outcome, Project, make_project


def test_work_of_others_is_shown_changed_and_removed(tmp_path: Path) -> None:
    project: Project = make_project(tmp_path / "project")

    async def external(*arguments: str) -> Outcome:
        return await asyncio.to_thread(project.pisub, "external", *arguments, "--session", "s")

    async def scenario() -> None:
        async with pisub.host("s", ScriptedHuman()):
            assert (await external("list")).out == "No external runs in this session.\n"
            fields = ("--set", "source=shell", "--set", "label=a build", "--set", "state=running")
            assert (await external("register", "b1", *fields)).out == "b1  running  a build (shell)\n"
            changed = await external("update", "b1", "--set", "state=failed", "--set", "endedAt=5", "--json")
            (run,) = changed.json["runs"]
            assert (run["state"], run["endedAt"]) == ("failed", 5)
            wrong = await external("update", "b1", "--set", "cwd=/")
            assert (wrong.code, "cwd" in wrong.err) == (Exit.USAGE, True)
            assert (await external("list")).out == "b1  failed  a build (shell)\n"
            assert (await external("unregister", "b1")).code == 0
            assert (await external("unregister", "b1")).code == Exit.NOT_FOUND
            assert (await external("list", "b1")).code == Exit.USAGE
            assert (await external("register")).code == Exit.USAGE

    asyncio.run(scenario())
