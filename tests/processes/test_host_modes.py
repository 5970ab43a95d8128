"""Whatever the parent is doing, a child's question surfaces: each way of waiting, and none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import pisub
from pisub.agents.trust import trust
from tests.support.eventually import HANG_S, eventually_async
from tests.support.host_project import Absent, Watched, make_asking_project

Wait = Callable[[pisub.Host, pisub.Run], Awaitable[object]]


async def _in_a_call(_: pisub.Host, run: pisub.Run) -> object:
    return await run.result()


async def _in_wait(host: pisub.Host, run: pisub.Run) -> object:
    return await host.wait(run.id)


async def _in_wait_for_all(host: pisub.Host, _: pisub.Run) -> object:
    return await host.wait(is_all=True)


async def _idle(_: pisub.Host, __: pisub.Run) -> object:
    return await asyncio.Event().wait()


async def _in_its_own_question(host: pisub.Host, _: pisub.Run) -> object:
    return await host.ask("own?")


@pytest.mark.parametrize(
    "mode", [_in_a_call, _in_wait, _in_wait_for_all, _idle, _in_its_own_question], ids=lambda mode: mode.__name__[1:]
)
def test_a_question_reaches_the_human_while_the_parent(mode: Wait, tmp_path: Path) -> None:
    project = make_asking_project(tmp_path / "project")

    async def scenario() -> None:
        human = Watched()
        async with asyncio.timeout(2 * HANG_S), pisub.host(dialogs=human) as host:
            run = await host.spawn("one", "surface?", project)
            parent = asyncio.create_task(mode(host, run))
            await eventually_async(lambda: "surface?" in [title for _, title, _ in human.seen])
            assert await run.text() == "ok:left"
            parent.cancel()
            await asyncio.wait([parent])

    asyncio.run(scenario())


def test_a_headless_parent_gets_no_host_and_nobody_waits(tmp_path: Path) -> None:
    project = make_asking_project(tmp_path / "project")

    async def scenario() -> None:
        async with asyncio.timeout(2 * HANG_S), pisub.connect() as client:
            run = await client.spawn("one", "anybody?", project)
            assert await run.text() == "no-host:None"

    asyncio.run(scenario())


def test_an_agent_that_gives_its_question_up_closes_the_dialog_and_goes_on(tmp_path: Path) -> None:
    project = make_asking_project(tmp_path / "project")
    with (project / "asking_agents.py").open("a") as file:
        file.write(_GIVES_UP)
    definition = (project / ".pisub/agents/one.md").read_text()
    (project / ".pisub/agents/gives_up.md").write_text(
        definition.replace("asking_agents:one", "asking_agents:gives_up").replace("name: one", "name: gives_up")
    )
    trust(pisub.load_settings(), project)

    async def scenario() -> None:
        human = Absent()
        async with asyncio.timeout(2 * HANG_S), pisub.host(dialogs=human) as host:
            run = await host.spawn("gives_up", "x", project)
            await eventually_async(lambda: human.opened == ["never mind?"])
            (project / "go").touch()
            await eventually_async(lambda: human.closed)
            assert await run.text() == "went on"

    asyncio.run(scenario())


_GIVES_UP = """

async def gives_up(child):
    asking = asyncio.create_task(child.ask("never mind?"))
    while not (child.cwd / "go").exists():
        await asyncio.sleep(0.01)
    asking.cancel()
    await asyncio.wait([asking])
    return "went on"
"""
