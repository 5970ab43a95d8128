"""Runs that start others without end, and are ended meanwhile: nothing below them is forgotten."""

from __future__ import annotations

import asyncio
import random
import signal
import textwrap
from pathlib import Path

import pytest

import pisub
from pisub.agents.trust import trust
from pisub.ids import new_id
from pisub.process import send_signal
from pisub.record.atomic import read_record
from pisub.record.layout import Layout
from pisub.record.model import Started
from pisub.record.reader import read_run
from pisub.record.tree import descendants
from pisub.testing import ScriptedHuman
from tests.support.eventually import eventually, eventually_async
from tests.support.nesting import end_of, make_family
from tests.support.project import Project

#: Starts runs from two threads of work at once until it is refused or cancelled.
BREEDER = """
import asyncio
import pisub


async def breeder(child):
    async with pisub.connect() as client:
        async def breed():
            while True:
                await client.spawn("sleep", "x")

        try:
            await asyncio.gather(breed(), breed())
        except pisub.PisubError as error:
            child.log(error.code)
            await asyncio.sleep(600)
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = make_family(tmp_path / "project")
    (made.root / "breeding.py").write_text(BREEDER)
    front = textwrap.dedent("""\
        ---
        name: breeder
        description: Starts runs without end.
        runner:
          type: python
          target: breeding:breeder
        ---
        """)
    (made.root / ".pisub" / "agents" / "breeder.md").write_text(front)
    trust(made.settings, made.root)
    return made


@pytest.mark.parametrize("seed", range(4))
def test_a_run_that_is_stopped_while_it_starts_others_takes_every_one_of_them_along(
    project: Project, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setenv("PISUB_MAX_SPAWNS_PER_RUN", "12")
    layout = Layout.of(project.settings)
    wanted = random.Random(seed).randint(1, 8)  # where the stop falls

    async def main() -> None:
        async with pisub.host("s", ScriptedHuman()) as host:
            run = await host.spawn("breeder", "x", project.root)
            await eventually_async(lambda: len(descendants(layout, run.id)) >= wanted, what="it has started some")
            assert (await run.stop()).state == "stopped"
            # No `tree=True`: whoever it started meanwhile ends by the cascade, or by what it finds above it.
            below = [each.run_id for each in descendants(layout, run.id)]
            for each in below:
                await host.run(each).result(60)
            ends = {end_of(layout, each) for each in below}
            # Whose launch was cut off by the end of the run never started.
            assert ends <= {("stopped", "ancestor-stop"), ("failed", "never-started")}, ends
            assert [each.run_id for each in descendants(layout, run.id)] == below
            assert len(below) <= 12

    asyncio.run(main())


def test_a_run_that_is_killed_while_it_starts_others_leaves_none_that_cannot_be_found_and_stopped(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PISUB_MAX_SPAWNS_PER_RUN", "12")
    layout = Layout.of(project.settings)

    async def main() -> None:
        async with pisub.host("s", ScriptedHuman()) as host:
            run = await host.spawn("breeder", "x", project.root)
            await eventually_async(lambda: len(descendants(layout, run.id)) >= 3, what="it has started some")
            process = await run.process()
            assert process is not None
            assert send_signal(process, signal.SIGKILL)
            assert (await run.result()).reason == "runner-died"
            assert (await run.stop(tree=True)).reason == "runner-died", "its own end stays"
            for each in descendants(layout, run.id):
                assert read_run(layout, each.run_id).state.is_terminal

    asyncio.run(main())


def test_a_signal_that_comes_the_moment_a_runner_is_known_does_not_kill_it(project: Project) -> None:
    layout = Layout.of(project.settings)

    def hurry(run_id: str) -> None:
        """Send "look at your inbox" as soon as there is somebody to send it to."""
        started = eventually(lambda: read_record(layout.run(run_id).started, Started), what="it has started")
        assert started is not None
        send_signal(started.process, signal.SIGUSR2)

    async def main() -> None:
        async with pisub.connect("s") as client:
            for number in range(10):
                run_id = new_id()
                hurrying = asyncio.ensure_future(asyncio.to_thread(hurry, run_id))
                run = await client.spawn("echo", str(number), project.root, run_id=run_id)
                await hurrying
                assert await run.text() == str(number)

    asyncio.run(main())
