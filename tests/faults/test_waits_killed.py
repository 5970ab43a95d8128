"""A host is killed in its handler, and the broker with it: the next host has every end, said to come again, and no
wait a second time.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

import pisub
from pisub.config import Settings
from pisub.launch import find_broker
from pisub.process import send_signal
from pisub.record.layout import Layout
from pisub.record.sessions import Outbox
from pisub.record.subscriptions import list_subscriptions
from tests.support.eventually import eventually_async
from tests.support.project import Project, make_project

SESSION = "killed"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


@contextlib.contextmanager
def host_process(log: Path, *options: str) -> Generator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.support.told_host", SESSION, str(log), *options]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2]) as process:
        try:
            yield process
        finally:
            process.kill()


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


@pytest.mark.parametrize("is_broker_killed", [False, True])
def test_a_host_killed_in_its_handler_leaves_the_end_to_the_next_and_no_wait_comes_twice(
    project: Project, settings: Settings, tmp_path: Path, is_broker_killed: bool
) -> None:
    log = tmp_path / "told"

    async def scenario() -> None:
        async with pisub.connect(SESSION, settings=settings) as client:
            first = await client.spawn("echo", "one", cwd=project.root)
            waits = [await client.wait_in_background(first.id)]
            await first.result()
            with host_process(log, "hang") as host:
                await eventually_async(lambda: len(lines(log)) == 2, what="both are told, and the handler hangs")
                second = await client.spawn("echo", "two", cwd=project.root)
                waits.append(await client.wait_in_background(second.id))
                await second.result()
                await eventually_async(lambda: len(lines(log)) == 3, what="a wait is told while the handler hangs")
                broker = find_broker(settings)
                assert broker is not None
                host.kill()
                if is_broker_killed:
                    send_signal(broker.process, signal.SIGKILL)
            third = await client.spawn("echo", "three", cwd=project.root)
            waits.append(await client.wait_in_background(third.id))
            await third.result()
            layout = Layout.of(settings)
            with host_process(log):
                await eventually_async(lambda: not list_subscriptions(layout), what="no wait is left")
                await eventually_async(lambda: not Outbox(layout, SESSION).pending(), what="no end is left")
                await eventually_async(lambda: len(lines(log)) == 7, what="all is told")
        told = sorted(lines(log))
        assert told == sorted(
            [
                f"end {first.id}:complete 0",
                f"end {first.id}:complete 1",
                f"end {second.id}:complete 0",
                f"end {third.id}:complete 0",
                *(f"wait {each.token} complete" for each in waits),
            ]
        )

    asyncio.run(scenario())
