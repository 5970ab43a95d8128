"""The broker goes, by kill -9 or with its directory, under calls, runs and hosts that are alive: all of it goes on."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import pisub
from benchmarks.chaos_broker import Told, killed
from benchmarks.chaos_parts import end_broker
from pisub.client.bus import Bus
from pisub.config import Settings
from pisub.launch import BrokerInfo, find_broker
from pisub.paths import runtime_dir
from pisub.process import Liveness, ProcessIdentity, identify, liveness, send_signal
from pisub.protocol.runs import RunState
from pisub.protocol.session import FindRole, PeerKind, RoleHolder, Status, StatusReport
from pisub.record.layout import Layout
from pisub.record.reader import read_run
from pisub.record.sessions import last_host
from tests.support.broker_process import wait_gone
from tests.support.eventually import eventually, eventually_async
from tests.support.project import Project, make_project

#: A program that is, or waits to be, the host of the session "s": says each turn of its own on a line.
HOST = """
import asyncio, sys, pisub
from pisub.testing import ScriptedHuman

async def main():
    async with pisub.host("s", ScriptedHuman(), wait=True) as host:
        print("host" if host.is_host else "view", flush=True)
        if not host.is_host:
            await host.wait_for_turn()
            print("host now", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(main())
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


@pytest.fixture
def chaos_settings(settings: Settings) -> Iterator[Settings]:
    yield settings
    end_broker(settings)


def serving(settings: Settings) -> BrokerInfo:
    info = find_broker(settings)
    assert info is not None
    return info


def kill_broker(settings: Settings) -> None:
    process = serving(settings).process
    assert send_signal(process, signal.SIGKILL)
    wait_gone(process)


def test_killed_at_random_moments_nothing_is_lost_and_nothing_done_twice(chaos_settings: Settings) -> None:
    told = asyncio.run(killed(chaos_settings, [0.0, 0.0, 0.0, 1.0], calls=40, runs=2, seed=7))
    assert told.is_clean, told.examples
    assert (told.kills, told.runs, told.calls) == (4, 2, told.answered + told.unknown + told.not_delivered)
    assert told.questions > 0
    assert isinstance(told, Told)


class Patient:
    """A human that answers when told to."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.go = asyncio.Event()

    async def select(self, title: str, options: Sequence[str], context: pisub.DialogContext) -> str | None:
        return await self.input(title, "", context)

    async def input(self, title: str, placeholder: str, context: pisub.DialogContext) -> str | None:
        self.shown.append(title)
        await self.go.wait()
        return "right" if title == "Which?" else "because"


def test_when_the_runtime_directory_is_deleted_one_broker_serves_again_and_runs_and_hosts_move_over(
    project: Project,
) -> None:
    settings = project.settings

    async def main() -> None:
        human = Patient()
        async with pisub.host("s", human) as host:
            run = await host.spawn("ask", "x", project.root)
            await eventually_async(lambda: human.shown == ["Which?"], what="the child asks")
            first = serving(settings)
            await asyncio.to_thread(shutil.rmtree, runtime_dir(settings))
            await eventually_async(lambda: liveness(first.process) is Liveness.DEAD, what="the old broker leaves")
            await eventually_async(lambda: find_broker(settings) is not None, what="one broker serves again")
            second = serving(settings)
            assert second.epoch != first.epoch

            async def holder() -> str:
                async with await Bus.connect(settings, kind=PeerKind.OBSERVER) as bus:
                    assert bus.epoch == second.epoch
                    return (await bus.control(FindRole(role="host", scope="s"), RoleHolder)).address

            await eventually_async(lambda: host.client.bus.epoch == second.epoch, what="the host moved over")
            assert await holder() == host.client.bus.address
            human.go.set()
            assert await run.text() == "ok: ('right', 'because')"
            assert human.shown == ["Which?", "Why?"], "each was shown once"
            assert serving(settings) == second, "no third broker was started"

    asyncio.run(main())


@contextlib.contextmanager
def host_program() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOST]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.communicate(timeout=20)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def role_holder(settings: Settings) -> str:
    async def main() -> str:
        async with await Bus.connect(settings, kind=PeerKind.OBSERVER) as bus:
            return (await bus.control(FindRole(role="host", scope="s"), RoleHolder)).address

    return asyncio.run(main())


def test_a_view_never_overtakes_the_host_after_a_restart(settings: Settings) -> None:
    with host_program() as host:
        eventually(lambda: find_broker(settings) is not None and role_holder(settings) != "", what="it is the host")
        address = role_holder(settings)
        with host_program() as view:
            assert said(view) == "view"
            for _ in range(3):
                # The host is stopped while the next broker comes up, so the view is there first, and alone.
                host.send_signal(signal.SIGSTOP)
                kill_broker(settings)
                eventually(lambda: view_is_back(settings), what="the view is back", within_s=15.0)
                host.send_signal(signal.SIGCONT)
                eventually(lambda: role_holder(settings) == address, what="the host is host again", within_s=15.0)
            assert last_host(Layout.of(settings), "s") == (1, identity_of(host)), "the view wrote no host file"
            host.kill()
            assert said(view) == "host now"


def identity_of(process: subprocess.Popen[str]) -> ProcessIdentity:
    found = identify(process.pid)
    assert found is not None
    return found


def view_is_back(settings: Settings) -> bool:
    """Tell whether a new broker serves, and the view is connected to it."""
    info = find_broker(settings)
    if info is None:
        return False

    async def main() -> bool:
        async with await Bus.connect(settings, kind=PeerKind.OBSERVER, start_broker=False) as bus:
            report = await bus.control(Status(), StatusReport)
            return any(each.session == "s" for each in report.peers)

    return asyncio.run(main())


def test_a_run_that_works_while_there_is_no_broker_ends_and_is_delivered_by_its_files(project: Project) -> None:
    settings = project.settings

    async def main() -> None:
        ends: list[pisub.Delivery] = []
        async with pisub.host("s", Patient(), ends.append) as host:
            run = await host.spawn("release", "x", project.root)
            await eventually_async(lambda: view_state(run) == RunState.RUNNING, what="it runs")
            kill_broker(settings)
            (project.root / "go").touch()
            assert await run.text() == "released"
            await eventually_async(lambda: len(ends) == 1, what="its end is delivered, once", within_s=15.0)
            assert ends[0].completion.run_id == run.id

    def view_state(run: pisub.Run) -> str:
        return read_run(Layout.of(settings), run.id).state

    asyncio.run(main())
