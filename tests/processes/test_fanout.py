"""Several runs at once: all or none, so many at a time, in order; and what becomes of those that wait."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import msgspec
import pytest

import pisub
from pisub.config import caller_environment
from pisub.errors import CapReachedError, InvalidArgumentError, PisubError, UnknownAgentError
from pisub.process import send_signal
from pisub.protocol.runs import RunState
from pisub.record.layout import Layout
from pisub.record.reader import list_runs, read_run
from pisub.testing import ScriptedHuman
from tests.support.eventually import eventually_async
from tests.support.nesting import as_task, children_of, end_of, make_family, plan
from tests.support.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_family(tmp_path / "project")


def tasks(project: Project, agent: str, count: int) -> list[pisub.Task]:
    return [pisub.Task(agent=agent, task=str(number), cwd=project.root) for number in range(count)]


async def reach(client: pisub.Client, runs: list[pisub.Run], *wanted: RunState) -> None:
    """Wait until the runs are in these states."""

    def are_there() -> bool:
        return [read_run(client.layout, run.id).state for run in runs] == list(wanted)

    await eventually_async(are_there, what=f"the runs are {wanted}")


def test_a_batch_is_queued_whole_and_started_in_order_so_many_at_a_time(project: Project) -> None:
    async def main() -> None:
        async with pisub.connect("s") as client:
            runs = await client.spawn_all(tasks(project, "release", 4), concurrency=2)
            await eventually_async(
                lambda: [end_of(client.layout, run.id) for run in runs] == [None] * 4, what="all are submitted"
            )
            await reach(client, runs, RunState.RUNNING, RunState.RUNNING, RunState.QUEUED, RunState.QUEUED)
            await runs[1].stop()
            await reach(client, runs, RunState.RUNNING, RunState.STOPPED, RunState.RUNNING, RunState.QUEUED)
            (project.root / "go").touch()
            assert [(await run.result()).state for run in runs] == [
                RunState.COMPLETE,
                RunState.STOPPED,
                RunState.COMPLETE,
                RunState.COMPLETE,
            ]

    asyncio.run(main())


def test_the_limit_of_a_client_holds_for_all_its_batches_together(project: Project) -> None:
    settings = msgspec.structs.replace(project.settings, global_concurrency_limit=1)

    async def main() -> None:
        async with pisub.connect("s", settings) as client:
            first, second = [await client.spawn_all(tasks(project, "release", 2)) for _ in range(2)]
            await reach(client, [*first, *second], RunState.RUNNING, *[RunState.QUEUED] * 3)
            (project.root / "go").touch()
            assert [await run.text() for run in (*first, *second)] == ["released"] * 4

    asyncio.run(main())


def test_a_run_that_is_stopped_before_its_turn_ends_as_stopped(project: Project) -> None:
    async def main() -> None:
        async with pisub.connect("s") as client:
            first, waiting = await client.spawn_all(tasks(project, "sleep", 2), concurrency=1)
            assert (await waiting.stop()).state is RunState.STOPPED
            assert (await first.stop()).state is RunState.STOPPED

    asyncio.run(main())


def test_what_waits_for_its_turn_when_the_client_closes_ends_and_what_goes_on_goes_on(project: Project) -> None:
    layout = Layout.of(project.settings)

    async def main() -> None:
        async with pisub.connect("s") as client:
            first, waiting = await client.spawn_all(tasks(project, "release", 2), concurrency=1)
            await reach(client, [first], RunState.RUNNING)
        assert end_of(layout, waiting.id) == ("failed", "never-started")
        assert end_of(layout, first.id) is None
        (project.root / "go").touch()
        async with pisub.connect("s") as client:
            assert await client.run(first.id).text() == "released"

    asyncio.run(main())


def test_of_a_batch_in_which_one_task_is_wrong_nothing_is_started(project: Project) -> None:
    async def refused(client: pisub.Client, batch: list[pisub.Task]) -> PisubError:
        with pytest.raises(PisubError) as error:
            await client.spawn_all(batch)
        return error.value

    async def main() -> None:
        async with pisub.connect("s") as client:
            good = tasks(project, "echo", 2)
            unknown = pisub.Task(agent="nobody", task="x", cwd=project.root)
            assert isinstance(await refused(client, [*good, unknown]), UnknownAgentError)
            for batch in ([], tasks(project, "echo", 9)):
                error = await refused(client, batch)
                assert (type(error), error.field) == (InvalidArgumentError, "tasks")
            assert list_runs(client.layout, include_finished=True) == []

    asyncio.run(main())


def test_the_cap_of_a_session_refuses_a_batch_as_a_whole_and_names_what_does_not_fit(project: Project) -> None:
    settings = msgspec.structs.replace(project.settings, max_spawns_per_session=3)

    async def main() -> None:
        async with pisub.connect("s", settings) as client:
            done = await client.spawn_all(tasks(project, "echo", 2))
            assert [await run.text() for run in done] == ["0", "1"]
            with pytest.raises(CapReachedError) as refused:
                await client.spawn_all(tasks(project, "echo", 2))
            found = refused.value
            assert (found.code, found.used, found.limit, found.path) == ("session_spawn_limit", 2, 3, "tasks[1]")
            assert await (await client.spawn("echo", "last", project.root)).text() == "last"
            with pytest.raises(CapReachedError, match="max_spawns_per_session"):
                await client.spawn("echo", "x", project.root)
            # A resume is not charged, though its cap is used up.
            assert await (await done[0].resume("again")).text() == "0"

    asyncio.run(main())


def test_the_cap_of_a_tree_holds_in_the_run_itself_whatever_its_environment_says(project: Project) -> None:
    settings = msgspec.structs.replace(project.settings, max_spawns_per_run=2)
    wanted = plan(("echo", "a"), ("echo", "b"), ("echo", "c"))

    async def main() -> None:
        async with pisub.host("s", ScriptedHuman(), settings=settings) as host:
            environ = {**caller_environment(), "PISUB_MAX_SPAWNS_PER_RUN": "500"}
            run = await host.spawn("parent", as_task(wanted), project.root, environ=environ)
            said = msgspec.json.decode(await run.text())
            assert said["code"] == "RUN_FANOUT_LIMIT"
            assert len(children_of(host.client.layout, run.id)) == 2

    asyncio.run(main())


def test_the_place_of_an_active_run_is_free_again_however_it_ended(project: Project) -> None:
    settings = msgspec.structs.replace(project.settings, max_active_async_runs_per_session=1)

    async def main() -> None:
        async with pisub.connect("s", settings) as client:
            for agent, end in (("echo", "complete"), ("fail", "failed"), ("sleep", "stopped"), ("sleep", "killed")):
                run = await client.spawn(agent, "x", project.root)
                if end in {"stopped", "killed"}:
                    with pytest.raises(CapReachedError) as refused:
                        await client.spawn("echo", "x", project.root)
                    assert (refused.value.code, refused.value.used, refused.value.limit) == ("active_run_limit", 1, 1)
                if end == "stopped":
                    await run.stop()
                elif end == "killed":
                    await kill(client, run)
                assert (await run.result()).state == ("failed" if end == "killed" else end)
            last = await client.spawn("echo", "x", project.root)
            assert await last.text() == "x"
            full = await client.spawn("sleep", "x", project.root)
            # What has ended is gone on with where there is no room for another.
            assert await (await last.resume("again")).text() == "x"
            await full.stop()

    asyncio.run(main())


async def kill(client: pisub.Client, run: pisub.Run) -> None:
    await reach(client, [run], RunState.RUNNING)
    process = await run.process()
    assert process is not None
    assert send_signal(process, signal.SIGKILL)
