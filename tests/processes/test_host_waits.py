"""Waits in the background, with a real host, and one that comes after the run has ended."""

import asyncio
from pathlib import Path

import pytest

import pisub
from pisub.config import Settings
from pisub.errors import UnknownRunError
from pisub.hosting.subscriptions import WaitEnded
from pisub.protocol.runs import WAIT_ENDED_TOPIC, WaitOver
from pisub.record.layout import Layout
from pisub.record.subscriptions import list_subscriptions
from pisub.testing import ScriptedHuman
from tests.support.eventually import eventually_async
from tests.support.project import Project, make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


def test_a_host_that_starts_after_the_end_is_told_of_the_wait_and_the_next_is_not(
    project: Project, settings: Settings
) -> None:
    async def scenario() -> None:
        async with pisub.connect("waits", settings=settings) as client:
            run = await client.spawn("echo", "hello", cwd=project.root)
            subscription = await client.wait_in_background(run.id[:20])
            with pytest.raises(UnknownRunError):
                await client.wait_in_background("0" * 26)
            await run.result()
        for expected in (1, 0):
            told: list[WaitEnded] = []
            async with pisub.host("waits", ScriptedHuman([]), on_wait=told.append, settings=settings) as host:
                await eventually_async(lambda told=told, expected=expected: len(told) == expected, what="the wait")
                assert host.is_host
            assert [(each.subscription, each.outcome) for each in told] == [(subscription, "complete")] * expected
        assert list_subscriptions(Layout.of(settings)) == []

    asyncio.run(scenario())


def test_a_view_hears_of_a_wait_that_is_over(project: Project, settings: Settings) -> None:
    async def scenario() -> None:
        heard: list[WaitOver] = []
        told: list[WaitEnded] = []
        async with (
            pisub.connect("waits", settings=settings) as view,
            pisub.host("waits", ScriptedHuman([]), on_wait=told.append, settings=settings) as host,
        ):
            await view.bus.subscribe(WAIT_ENDED_TOPIC, lambda each: heard.append(each.decode(WaitOver)), scope="waits")
            run = await host.spawn("echo", "hello", cwd=project.root)
            wait = await host.wait_in_background(run.id)
            await eventually_async(lambda: bool(told and heard), what="both are told")
        over = WaitOver(
            token=wait.token,
            session_id="waits",
            run_id=run.id,
            outcome="complete",
            text=f"Run {run.id} has ended: complete.",
        )
        assert (heard, [each.outcome for each in told]) == ([over], ["complete"])

    asyncio.run(scenario())
