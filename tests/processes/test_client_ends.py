"""How a runner ended: the broker says that it went, the record says by what."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

import pisub
from pisub.client.bus import Bus
from pisub.client.ends import PeerEnd, end_of
from pisub.process import send_signal
from pisub.protocol.runs import runner_address
from pisub.protocol.session import GoneReason, PeerKind, Status, StatusReport, Terminated
from pisub.record.layout import Layout
from pisub.testing import ScriptedHuman
from tests.support.eventually import eventually_async
from tests.support.project import Project, make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


async def is_connected(observer: Bus, address: str) -> bool:
    report = await observer.control(Status(), StatusReport)
    return any(each.address == address for each in report.peers)


def test_the_end_of_a_killed_runner_has_its_signal(project: Project) -> None:
    layout = Layout.of(project.settings)

    async def main() -> None:
        gone: list[Terminated] = []
        async with (
            pisub.host("s", ScriptedHuman()) as host,
            await Bus.connect(project.settings, kind=PeerKind.OBSERVER) as observer,
        ):
            run = await host.spawn("sleep", "x", project.root)
            address = runner_address(run.id)
            async with asyncio.timeout(20):
                while not await is_connected(observer, address):
                    pass  # each look is a round trip, so nothing spins
            await observer.watch(address, gone.append)
            process = await run.process()
            assert process is not None
            assert send_signal(process, signal.SIGKILL)
            await eventually_async(lambda: gone, what="its end is told")
            assert await end_of(layout, gone[0]) == PeerEnd(
                address=address, reason=GoneReason.EXITED, signal="SIGKILL", is_observed=True
            )
            assert (await run.result()).state is pisub.RunState.FAILED

    asyncio.run(main())


def test_of_who_is_no_runner_or_has_no_record_the_broker_s_word_is_all(project: Project) -> None:
    layout = Layout.of(project.settings)
    for address, reason in (
        ("client:x", GoneReason.EXITED),
        (f"run:{'0' * 26}", GoneReason.EXITED),
        (f"run:{'0' * 26}", GoneReason.LOST),
        ("run:../../etc", GoneReason.EXITED),
    ):
        gone = Terminated(address=address, reason=reason)
        assert asyncio.run(end_of(layout, gone, within_s=0.0)) == PeerEnd(address=address, reason=reason)
