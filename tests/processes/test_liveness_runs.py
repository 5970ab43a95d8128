"""Liveness of real sessions: asked by a program, by the command line, and of a host that holds ends back."""

import asyncio
from pathlib import Path

import pisub
from pisub.liveness import LivenessRegistry
from pisub.testing import ScriptedHuman
from tests.support.eventually import eventually_async
from tests.support.project import make_project


def test_a_session_is_live_while_its_run_goes_on_and_its_host_has_not_told_the_end(tmp_path: Path) -> None:
    project = make_project(tmp_path)

    async def scenario() -> None:
        registry = LivenessRegistry()
        told, go_on = asyncio.Event(), asyncio.Event()

        async def tell(_: pisub.Delivery) -> None:
            told.set()
            await go_on.wait()

        async with pisub.connect("asking") as client:
            async with pisub.host("one", ScriptedHuman(), tell) as host:
                host.announce_liveness(registry)
                assert not await client.session_is_live("one")
                run = await host.spawn("release", "x", project.root)
                assert await client.session_is_live("one")
                assert registry.has_active_provider(session_id="one")
                assert not await client.session_is_live()
                (project.root / "go").touch()
                await run.result()
                await told.wait()
                assert await client.session_is_live("one")
                assert await client.session_is_live("no-such-id", session_file="one")
                sessions = (await asyncio.to_thread(project.pisub, "sessions", "--live", "--json")).json["sessions"]
                assert [(each["sessionId"], each["reasons"]) for each in sessions] == [("one", ["completions"])]
                go_on.set()
                await eventually_async(lambda: not registry.has_active_provider(session_id="one"), what="it is told")
                assert not await client.session_is_live("one")
            assert not registry.has_active_provider(session_id="one")
            assert not await client.session_is_live("one")

    asyncio.run(scenario())


def test_a_host_that_cannot_tell_keeps_its_session(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pisub.connect("asking") as client, pisub.host("one", ScriptedHuman()) as host:

            def stuck() -> bool:
                raise OSError(5, "Input/output error")

            host._session.liveness._has_ends = stuck
            assert await client.session_is_live("one")
            host._session.liveness._has_ends = lambda: False
            assert not await client.session_is_live("one")

    asyncio.run(scenario())
