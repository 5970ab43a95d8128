"""The library: delegate, look, stop. Real broker, nursery and runners."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

import pisub
from pisub.errors import (
    EnvironmentTooLargeError,
    InvalidArgumentError,
    LaunchError,
    RefusedError,
    RunFailedError,
    UnknownAgentError,
    UntrustedProjectError,
    WaitTimeoutError,
)
from pisub.ids import new_id
from pisub.launch import find_broker
from pisub.protocol.runs import RunState
from tests.support.eventually import eventually_async
from tests.support.project import Project, make_project

NASTY = "-x \"quoted\" 'single' $(id) `id` \\ \t line\nnext\r\n\x00é😀 " + "payload " * 25_000


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


async def until_it_says(run: pisub.Run, text: str) -> None:
    async for event in run.events():
        if event.data.get("text") == text:
            return


def test_a_run_s_events_come_once_in_order_and_end_with_it(project: Project) -> None:
    async def scenario() -> None:
        async with pisub.connect() as client:
            run = await client.spawn("talk", "x", project.root)
            events = [event async for event in run.events()]
            again = [event async for event in client.run(run.id[:20]).events()]
            result = await run.result()
            text = await run.text()
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert again == events
        assert events[-1].type == "subagent.run.completed"
        assert (result.state, result.output) == (RunState.COMPLETE, "talked")
        assert result.artifacts == ("artifacts/notes/one.md",)
        assert text == "talked"

    asyncio.run(scenario())


def test_a_long_and_nasty_task_arrives_byte_for_byte(project: Project) -> None:
    async def scenario() -> None:
        async with pisub.connect() as client:
            assert await (await client.spawn("echo", NASTY, project.root)).text() == NASTY

    asyncio.run(scenario())


def test_forty_short_runs_lose_and_double_nothing(project: Project) -> None:
    async def scenario() -> None:
        async with pisub.connect() as client:

            async def one(number: int) -> tuple[str, int]:
                run = await client.spawn("echo", f"task {number}", project.root)
                events = [event async for event in run.events()]
                assert [event.seq for event in events] == list(range(1, len(events) + 1))
                return await run.text(), len(events)

            for first in range(0, 40, 8):
                done = await asyncio.gather(*(one(number) for number in range(first, first + 8)))
                assert [text for text, _ in done] == [f"task {number}" for number in range(first, first + 8)]

    asyncio.run(scenario())


def test_a_stop_ends_a_run_and_repeats_harmlessly(project: Project) -> None:
    async def scenario() -> None:
        async with pisub.connect() as client:
            run = await client.spawn("sleep", "x", project.root)
            await until_it_says(run, "asleep")
            with pytest.raises(WaitTimeoutError):
                await run.result(timeout_s=0.05)
            result = await run.stop("enough")
            assert (result.state, result.success) == (RunState.STOPPED, False)
            assert await run.stop() == result
            with pytest.raises(RunFailedError) as caught:
                await run.text()
            assert caught.value.state == "stopped"

    asyncio.run(scenario())


def test_an_agent_in_a_loop_of_c_code_is_ended_and_recorded_as_stopped(project: Project) -> None:
    async def scenario() -> None:
        async with pisub.connect() as client:
            run = await client.spawn("crunch", "x", project.root)
            await eventually_async(client.layout.run(run.id).started.exists)
            result = await run.stop()
            assert result.state is RunState.STOPPED

    asyncio.run(scenario())


def test_a_killed_runner_is_a_failed_result_with_its_signal_within_two_seconds(project: Project) -> None:
    async def scenario() -> None:
        async with pisub.connect() as client:
            run = await client.spawn("sleep", "x", project.root)
            await until_it_says(run, "asleep")
            process = await run.process()
            assert process is not None
            before = time.monotonic()
            os.kill(process.pid, signal.SIGKILL)
            result = await run.result(timeout_s=10)
            assert time.monotonic() - before < 2
            assert (result.state, result.signal) == (RunState.FAILED, "SIGKILL")
            events = [event async for event in run.events()]
            assert [event.seq for event in events] == list(range(1, len(events) + 1))

    asyncio.run(scenario())


def test_a_run_goes_on_through_the_death_of_the_broker_and_nothing_is_lost_or_doubled(project: Project) -> None:
    async def scenario() -> None:
        async with pisub.connect() as client:
            run = await client.spawn("release", "x", project.root)
            events = run.events()
            seen = [await anext(events)]
            while seen[-1].data.get("text") != "waiting":
                seen.append(await anext(events))
            broker = find_broker(client.settings)
            assert broker is not None
            os.kill(broker.process.pid, signal.SIGKILL)
            (project.root / "go").touch()
            seen += [event async for event in events]
            assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
            assert await run.text() == "released"
            await eventually_async(
                lambda: (now := find_broker(client.settings)) is not None and now.epoch != broker.epoch,
                what="a new broker serves",
            )
            assert await (await client.spawn("echo", "again", project.root)).text() == "again"

    asyncio.run(scenario())


def test_the_same_run_id_runs_once(project: Project) -> None:
    async def scenario() -> None:
        run_id = new_id()
        async with pisub.connect(session="mine") as client:
            runs = await asyncio.gather(*(client.spawn("talk", "x", project.root, run_id=run_id) for _ in range(6)))
            texts = await asyncio.gather(*(run.text() for run in runs))
            events = [event.type async for event in runs[0].events()]
            late = await client.spawn("talk", "x", project.root, run_id=run_id)
            with pytest.raises(RefusedError):
                await client.spawn("talk", "another task", project.root, run_id=run_id)
            assert await late.text() == "talked"
        assert texts == ["talked"] * 6
        assert events.count("subagent.run.started") == 1

    asyncio.run(scenario())


def test_what_cannot_run_is_an_error_with_its_field_and_leaves_nothing(project: Project, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pisub.connect() as client:
            for field, call in {
                "cwd": lambda: client.spawn("echo", "x", tmp_path / "missing"),
                "task": lambda: client.spawn("echo", "  ", project.root),
                "timeout_ms": lambda: client.spawn("echo", "x", project.root, timeout_ms=-1),
            }.items():
                with pytest.raises(InvalidArgumentError) as caught:
                    await call()
                assert caught.value.field == field
            with pytest.raises(UnknownAgentError):
                await client.spawn("nobody", "x", project.root)
            (project.root / ".pisub" / "agents" / "more.md").write_text("changed")
            with pytest.raises(UntrustedProjectError):
                await client.spawn("echo", "x", project.root)
            assert await client.runs(include_finished=True) == []

    asyncio.run(scenario())


def test_a_launch_that_fails_is_recorded_as_failed_and_never_queued_for_ever(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with pisub.connect(nursery=False) as client:
            with pytest.raises(EnvironmentTooLargeError):
                await client.spawn("echo", "x", project.root, environ={"BIG": "x" * 2_000_000})
            assert await client.runs(include_finished=True) == []
            monkeypatch.setattr("sys.executable", "/no/such/interpreter")
            with pytest.raises(LaunchError):
                await client.spawn("echo", "x", project.root)
            (view,) = await client.runs(include_finished=True)
            assert view.state is RunState.FAILED
            assert view.result is not None
            assert view.result.reason == "never-started"

    asyncio.run(scenario())


def test_a_deadline_ends_a_run_as_failed_with_reason_timeout(project: Project) -> None:
    async def scenario() -> None:
        async with pisub.connect() as client:
            result = await (await client.spawn("sleep", "x", project.root, timeout_ms=200)).result()
            assert (result.state, result.reason) == (RunState.FAILED, "timeout")

    asyncio.run(scenario())


def test_a_session_lists_its_own_runs_only(project: Project) -> None:
    async def scenario() -> None:
        async with pisub.connect(session="one") as one, pisub.connect(session="two") as two:
            run = await one.spawn("release", "x", project.root)
            assert [view.run_id for view in await one.runs()] == [run.id]
            assert await two.runs() == []
            assert two.run(run.id).id == run.id
            (project.root / "go").touch()
            await run.result()
            assert await one.runs() == []
            assert [view.run_id for view in await one.runs(include_finished=True)] == [run.id]

    asyncio.run(scenario())
