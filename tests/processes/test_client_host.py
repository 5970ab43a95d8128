"""The library's host: it answers children, gets their ends, and gives way to the next one."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import pisub
from pisub.config import caller_environment
from pisub.errors import RoleTakenError
from pisub.protocol.runs import RunState
from pisub.record.reader import read_run
from pisub.testing import ScriptedHuman
from tests.support.eventually import eventually_async
from tests.support.project import Project, make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


class Recorder:
    """Dialogs of a program's own: they note who asks."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str, int, int]] = []

    async def select(self, title: str, options: Sequence[str], context: pisub.DialogContext) -> str | None:
        self.seen.append((title, context.agent, context.label, context.number, context.count))
        return options[-1]

    async def input(self, title: str, placeholder: str, context: pisub.DialogContext) -> str | None:
        self.seen.append((title, context.agent, context.label, context.number, context.count))
        return f"written for {context.run_id}"


def test_a_child_s_questions_reach_the_caller_s_own_dialogs_and_its_answers_reach_it(project: Project) -> None:
    async def scenario() -> None:
        dialogs = Recorder()
        async with pisub.host(dialogs=dialogs) as host:
            assert host.is_host
            run = await host.spawn("ask", "x", project.root, label="mine")
            assert await run.text() == f"ok: ('right', 'written for {run.id}')"
        assert dialogs.seen == [("Which?", "ask", "mine", 1, 2), ("Why?", "ask", "mine", 2, 2)]

    asyncio.run(scenario())


def test_eight_askers_each_get_their_own_answers(project: Project) -> None:
    async def scenario() -> None:
        async with pisub.host(dialogs=Recorder()) as host:
            runs = [await host.spawn("ask", "x", project.root) for _ in range(8)]
            texts = await asyncio.gather(*(run.text() for run in runs))
        assert texts == [f"ok: ('right', 'written for {run.id}')" for run in runs]

    asyncio.run(scenario())


def test_every_end_comes_once_to_the_session_s_host(project: Project) -> None:
    async def scenario() -> None:
        ends: list[pisub.Delivery] = []
        async with pisub.host("one", ScriptedHuman(), ends.append) as host, pisub.connect("two") as other:
            runs = [await host.spawn(agent, "x", project.root) for agent in ("echo", "fail", "talk")]
            foreign = await other.spawn("echo", "x", project.root)
            results = [await run.result() for run in (*runs, foreign)]
            await eventually_async(lambda: len(ends) >= 3, what="three ends are delivered")
        assert [result.state for result in results] == [
            RunState.COMPLETE,
            RunState.FAILED,
            RunState.COMPLETE,
            RunState.COMPLETE,
        ]
        assert sorted(end.completion.run_id for end in ends) == sorted(run.id for run in runs)
        assert not any(end.redelivered for end in ends)

    asyncio.run(scenario())


def test_a_session_has_one_host_and_the_next_takes_over(project: Project) -> None:
    async def scenario() -> None:
        async with pisub.host("one", ScriptedHuman()) as first:
            assert first.is_host
            with pytest.raises(RoleTakenError):
                async with pisub.host("one", ScriptedHuman()):
                    pass
            waiting = pisub.host("one", ScriptedHuman(["left", "because"]), wait=True)
            second = await waiting.__aenter__()
            assert not second.is_host
        try:
            await eventually_async(lambda: second.is_host, what="the second is the host")
            assert await (await second.spawn("ask", "x", project.root)).text() == "ok: ('left', 'because')"
        finally:
            await waiting.__aexit__(None, None, None)

    asyncio.run(scenario())


HOST = """
import asyncio, sys
import pisub

class Silent:
    async def select(self, title, options, context):
        await asyncio.sleep(600)
    input = None

async def main():
    async with pisub.host("one", Silent()) as host:
        asking = await host.spawn("ask", "x", sys.argv[1], on_no_host=pisub.OnNoHost.WAIT)
        detached = await host.spawn("release", "x", sys.argv[1])
        attached = await host.spawn("sleep", "x", sys.argv[1], attached=True)
        print(asking.id, detached.id, attached.id, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def test_a_killed_host_leaves_detached_runs_going_and_its_open_question_to_the_next_host(project: Project) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOST, str(project.root)], stdout=subprocess.PIPE, env=caller_environment()
    )
    assert process.stdout is not None
    with process.stdout as stdout:
        asking_id, detached_id, attached_id = stdout.readline().decode().split()

    async def scenario() -> None:
        async with pisub.connect("one") as client:
            await eventually_async(
                lambda: project.pisub("questions", "--json").json["questions"], what="the question is open"
            )
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            attached = await client.run(attached_id).result(timeout_s=10)
            assert attached.state in {RunState.STOPPED, RunState.FAILED}
            assert (await client.run(detached_id).view()).state is RunState.RUNNING
            (project.root / "go").touch()
            assert await client.run(detached_id).text() == "released"
            ends: list[pisub.Delivery] = []
            async with pisub.host("one", ScriptedHuman(["left", "because"]), ends.append, wait=True) as second:
                assert await second.run(asking_id).text() == "ok: ('left', 'because')"
                await eventually_async(lambda: len(ends) >= 3, what="all three ends are delivered")
            assert sorted(end.completion.run_id for end in ends) == sorted((asking_id, detached_id, attached_id))

    asyncio.run(scenario())


ENDED_HOST = """
import asyncio, sys
import pisub
from pisub.testing import ScriptedHuman

async def main():
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, over.set)
    async with pisub.host("one", ScriptedHuman()) as host:
        runs = [await host.spawn("sleep", "x", sys.argv[1], attached=attached) for attached in (False, True)]
        print(*(run.id for run in runs), flush=True)
        await over.wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("end", ["exit", "SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_however_a_host_ends_what_is_attached_ends_with_it_and_what_is_detached_goes_on(
    project: Project, end: str
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ENDED_HOST, str(project.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=caller_environment(),
    ) as process:
        assert process.stdout is not None
        detached_id, attached_id = process.stdout.readline().decode().split()

        async def scenario() -> None:
            async with pisub.connect("one") as client:
                detached = client.run(detached_id)
                await eventually_async(
                    lambda: read_run(client.layout, detached_id).state is RunState.RUNNING, what="it has begun"
                )
                if end != "exit":
                    process.send_signal(signal.Signals[end])
                process.communicate()  # closes its standard input, which is its sign to leave
                attached = await client.run(attached_id).result(timeout_s=30)
                assert (attached.state, attached.reason) == (RunState.STOPPED, "host-gone")
                assert (await detached.view()).state is RunState.RUNNING
                await detached.stop("the test is over")

        asyncio.run(scenario())
