"""What is submitted is launched or ends: no run is queued for as long as its submitter happens to live."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

import pisub
from pisub.client.spawn import SpawnRequest, spawn_blocking
from pisub.errors import LaunchError
from pisub.launch import Program
from pisub.launchers.local import LocalLauncher
from pisub.protocol.runs import RunState
from pisub.record.layout import Layout
from pisub.record.reader import list_runs
from tests.support.eventually import eventually
from tests.support.project import Project, make_project

ROUNDS = 24


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


def broken_launcher(project: Project) -> None:
    def find_program() -> Program:
        raise TypeError("a bug")

    request = SpawnRequest(agent="echo", task="x", session_id="s", cwd=project.root)
    launcher = LocalLauncher(project.settings, find_program=find_program)
    with pytest.raises(TypeError):
        spawn_blocking(project.settings, Layout.of(project.settings), request, launcher=launcher)


def given_up(project: Project) -> None:
    request = SpawnRequest(agent="echo", task="x", session_id="s", cwd=project.root)
    with pytest.raises(LaunchError):
        spawn_blocking(project.settings, Layout.of(project.settings), request, is_given_up=lambda: True)


@pytest.mark.parametrize("misfortune", [broken_launcher, given_up])
def test_whatever_comes_between_submission_and_launch_ends_the_run(
    project: Project, misfortune: Callable[[Project], None]
) -> None:
    misfortune(project)
    (view,) = list_runs(Layout.of(project.settings), include_finished=True)
    assert view.state is RunState.FAILED
    assert view.result is not None
    assert view.result.reason == "never-started"


def test_a_spawn_that_is_cancelled_at_any_moment_leaves_nothing_queued(project: Project) -> None:
    async def scenario() -> None:
        async with pisub.connect() as client:
            await (await client.spawn("echo", "first", project.root)).result()
            loop = asyncio.get_running_loop()
            for number in range(ROUNDS):
                spawning = asyncio.create_task(client.spawn("echo", "x", project.root))
                loop.call_later(number * 0.001, spawning.cancel)
                await asyncio.wait({spawning})
            layout = Layout.of(client.settings)
            await asyncio.to_thread(eventually, lambda: not list_runs(layout), what="every run has ended")

    asyncio.run(scenario())
