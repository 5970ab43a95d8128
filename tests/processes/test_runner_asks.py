"""A child asks, through a real runner and a real broker."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from pisub.client.bus import Bus, Sender
from pisub.client.bus_types import Incoming
from pisub.config import Settings
from pisub.protocol.base import Message
from pisub.protocol.checkpoint import (
    HOST_READY_TOPIC,
    HOST_ROLE,
    Answer,
    AskCancelled,
    AskRequest,
    AskResult,
    AskStatus,
    HostReady,
)
from pisub.protocol.runs import RunState, progress_topic
from pisub.protocol.session import PeerKind
from pisub.record.layout import Layout
from pisub.record.model import OutcomeKind, QuestionOutcome, RunResult
from pisub.record.questions import list_open_asks, record_outcome
from pisub.runs.spec import OnNoHost
from tests.support.eventually import HANG_S, eventually, eventually_async
from tests.support.loops import in_loop
from tests.support.runner_runs import RunnerProcess, execute, python_runner, submit

ASKER = """
    from pisub.protocol.checkpoint import Question
    async def main(child):
        result = await child.ask([Question("Which?", options=["a", "b"]), "What for?"], why="to know")
        return f"{result.status} {result[0]} {result[1]}"
"""


@asynccontextmanager
async def host(settings: Settings, answer: Callable[[AskRequest], AskResult | None]) -> AsyncIterator[Bus]:
    bus = await Bus.connect(settings, kind=PeerKind.HOST, session="a-session")
    never = asyncio.Event()

    async def serve(request: AskRequest, _sender: Sender) -> Message:
        result = answer(request)
        if result is None:
            await never.wait()
            raise AssertionError
        return result

    try:
        bus.serve(AskRequest, serve)
        await bus.claim(HOST_ROLE, "a-session")
        bus.publish(HOST_READY_TOPIC, HostReady(session_id="a-session"), scope="a-session")
        yield bus
    finally:
        await bus.close()


def answers(*values: str) -> AskResult:
    return AskResult(status=AskStatus.OK, answers=tuple(Answer(value=value, by="host", at=1) for value in values))


async def wait(process: RunnerProcess) -> RunResult:
    return await asyncio.to_thread(process.wait)


@in_loop
async def test_a_host_that_only_replies_is_enough(settings: Settings, tmp_path: Path) -> None:
    seen: list[AskRequest] = []

    def answer(request: AskRequest) -> AskResult:
        seen.append(request)
        return answers("b", "fun")

    async with host(settings, answer):
        process = RunnerProcess(settings, submit(settings, python_runner(tmp_path, ASKER), cwd=tmp_path))
        result = await wait(process)
    assert (result.state, result.output) == (RunState.COMPLETE, "ok b fun")
    (request,) = seen
    assert (request.run_id, request.agent, request.why) == (process.spec.run_id, "tester", "to know")
    assert [question.text for question in request.questions] == ["Which?", "What for?"]
    kinds = [event.type for event in process.events() if "ask" in event.type]
    assert kinds == ["subagent.ask.opened", "subagent.ask.closed"]


def test_without_a_host_the_child_gets_no_host_at_once(settings: Settings, tmp_path: Path) -> None:
    spec = submit(settings, python_runner(tmp_path, ASKER), cwd=tmp_path)
    _, result = execute(settings, spec)
    assert (result.state, result.output) == (RunState.COMPLETE, "no-host None None")


def test_without_a_broker_an_answer_by_file_and_signal_reaches_the_child(settings: Settings, tmp_path: Path) -> None:
    assert settings.runtime_dir is not None
    settings.runtime_dir.write_text("not a directory")
    spec = submit(settings, python_runner(tmp_path, ASKER), cwd=tmp_path, on_no_host=OnNoHost.WAIT, timeout_ms=20_000)
    process = RunnerProcess(settings, spec)
    layout = Layout.of(settings)
    (view,) = eventually(lambda: list_open_asks(layout))

    def status_says_waiting() -> bool:
        status = process.status()
        return status is not None and status.activity_reason == "waiting_for_human" and status.deadline_at is None

    eventually(status_says_waiting)
    for number, value in ((1, "a"), (2, "by file")):
        outcome = QuestionOutcome(
            ask_id=view.record.ask_id,
            number=number,
            kind=OutcomeKind.ANSWERED,
            answer=Answer(value=value, by="cli", at=1),
            at=1,
        )
        record_outcome(layout, spec.run_id, outcome)
    process.process.send_signal(signal.SIGUSR2)
    result = process.wait()
    assert (result.output, list_open_asks(layout)) == ("ok a by file", [])
    assert result.waiting_for_human_ms > 0


@in_loop
async def test_a_run_that_waits_for_whoever_comes_is_answered_by_a_host_that_comes_later(
    settings: Settings, tmp_path: Path
) -> None:
    spec = submit(settings, python_runner(tmp_path, ASKER), cwd=tmp_path, on_no_host=OnNoHost.WAIT)
    process = RunnerProcess(settings, spec)
    await eventually_async(lambda: list_open_asks(Layout.of(settings)))
    async with host(settings, lambda _: answers("a", "late")):
        result = await wait(process)
    assert result.output == "ok a late"


@in_loop
async def test_a_stop_takes_the_question_back_and_tells_the_host(settings: Settings, tmp_path: Path) -> None:
    asked = asyncio.Event()
    told: list[AskCancelled] = []

    def answer(_request: AskRequest) -> None:
        asked.set()

    async with host(settings, answer) as bus:
        bus.on_tell(AskCancelled, lambda message, _sender: told.append(message))
        process = RunnerProcess(settings, submit(settings, python_runner(tmp_path, ASKER), cwd=tmp_path))
        await asyncio.wait_for(asked.wait(), 30)
        process.request(by_signal=signal.SIGUSR2)
        result = await wait(process)
        await eventually_async(lambda: told)
    assert result.state is RunState.STOPPED
    assert told[0].reason == "Stopped by a test."
    assert list_open_asks(Layout.of(settings)) == []


@in_loop
async def test_a_host_that_dies_with_the_dialog_open_is_followed_by_the_next(
    settings: Settings, tmp_path: Path
) -> None:
    asked = asyncio.Event()

    def answer(_request: AskRequest) -> None:
        asked.set()

    async with host(settings, answer):
        process = RunnerProcess(settings, submit(settings, python_runner(tmp_path, ASKER), cwd=tmp_path))
        await asyncio.wait_for(asked.wait(), 30)
    async with host(settings, lambda _: answers("b", "second host")):
        result = await wait(process)
    assert result.output == "ok b second host"


@in_loop
async def test_what_a_run_did_before_it_was_connected_is_told_when_it_is(settings: Settings, tmp_path: Path) -> None:
    spec = submit(settings, python_runner(tmp_path, ASKER), cwd=tmp_path, on_no_host=OnNoHost.WAIT)
    told: asyncio.Queue[Incoming] = asyncio.Queue()
    bus = await Bus.connect(settings, kind=PeerKind.CLIENT, session="a-session")
    try:
        await bus.subscribe(progress_topic(spec.run_id), told.put_nowait, scope="a-session")
        process = RunnerProcess(settings, spec)
        # The agent asks at once, and nothing happens after that: the news is from before the connection.
        async with asyncio.timeout(HANG_S):
            await told.get()
        process.request("stop", by_signal=signal.SIGUSR2)
        assert (await wait(process)).state is RunState.STOPPED
    finally:
        await bus.close()
