"""The fleet of a real session: keys that stay, and a host that answers from memory until something happens."""

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path

import pisub
from pisub.client.status import SessionStatus
from pisub.protocol.fleet import FleetStatus
from pisub.testing import ScriptedHuman
from tests.support.eventually import HANG_S
from tests.support.project import make_project


def keys_of(fleet: FleetStatus) -> list[str]:
    # One that was submitted first may begin last: the order is the entries' own, and not what is looked at here.
    return sorted(each.key for each in fleet.entries)


def test_keys_stay_with_their_children_and_are_not_given_twice(tmp_path: Path) -> None:
    project = make_project(tmp_path)

    async def scenario() -> None:
        async with pisub.connect() as client:
            first = await client.spawn("sleep", "x", project.root)
            assert keys_of(await client.fleet()) == ["fleet-1"]
            second = await client.spawn("sleep", "x", project.root)
            assert keys_of(await client.fleet()) == ["fleet-1", "fleet-2"]
            await second.stop()
            third = await client.spawn("sleep", "x", project.root)
            assert keys_of(await client.fleet()) == ["fleet-1", "fleet-3"]
            await first.stop()
            await third.stop()
            assert await client.fleet() == FleetStatus()

    asyncio.run(scenario())


def test_a_host_answers_from_memory_and_forgets_it_when_a_run_ends(tmp_path: Path) -> None:
    project = make_project(tmp_path)

    async def scenario() -> None:
        async with pisub.host(dialogs=ScriptedHuman()) as host:
            run = await host.spawn("sleep", "x", project.root)
            await until(host, lambda seen: [each.state for each in seen.snapshot.runs] == ["running"])
            await run.stop()
            status = await until(host, lambda seen: not seen.fleet.total_active)
            assert (status.snapshot.runs[0].id, status.snapshot.runs[0].state) == (run.id, "stopped")

    asyncio.run(scenario())


async def until(host: pisub.Host, check: Callable[[SessionStatus], bool]) -> SessionStatus:
    """Ask until the answer is right, as a view would that is drawn over and over."""
    async with asyncio.timeout(HANG_S):
        for _ in itertools.count():
            status = await host.status()
            if check(status):
                return status
            await asyncio.sleep(0)
    raise AssertionError("unreachable")
