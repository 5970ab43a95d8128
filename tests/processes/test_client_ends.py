"""How a runner ended: the broker says that it went, the record says by what."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

import pisub
from pisub.client.bus import Bus
from pisub.client.ends import PeerEnd, end_of
from pisub.process import ProcessIdentity, send_signal
from pisub.protocol.runs import runner_address
from pisub.protocol.session import GoneReason, PeerKind, Terminated
from pisub.record.layout import Layout
from pisub.testing import ScriptedHuman
from tests.support.eventually import eventually_async
from tests.support.project import Project, make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


@pytest.mark.parametrize(("agent", "is_killed"), [("sleep", True), ("echo", False)])
def test_the_end_of_a_runner_has_its_signal_or_its_exit_code(project: Project, agent: str, is_killed: bool) -> None:
    layout = Layout.of(project.settings)

    async def main() -> None:
        gone: list[Terminated] = []
        async with (
            pisub.host("s", ScriptedHuman()) as host,
            await Bus.connect(project.settings, kind=PeerKind.OBSERVER) as observer,
        ):
            run = await host.spawn(agent, "x", project.root)
            await observer.watch(runner_address(run.id), gone.append)
            if is_killed:
                process: ProcessIdentity | None = None
                while process is None:
                    process = await run.process()
                assert send_signal(process, signal.SIGKILL)
            await run.result()
            await eventually_async(lambda: gone, what="its end is told")
            end = await end_of(layout, gone[0])
        expected = (None, "SIGKILL") if is_killed else (0, None)
        if gone[0].reason is GoneReason.EXITED:
            assert (end.exit_code, end.signal, end.is_observed) == (*expected, True)
        else:  # a runner that ends in order says goodbye, or was gone before the watch began
            assert not is_killed

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
