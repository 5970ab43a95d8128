"""Messages to a working agent: a real runner, its files, and what a sender reads in them."""

import signal
from pathlib import Path

from pisub.config import Settings
from pisub.protocol.runs import RunState
from pisub.record.layout import Layout
from pisub.record.steering import (
    SteerRequest,
    is_inbox_closed,
    make_request,
    read_acks,
    read_capability,
    request_steer,
)
from pisub.runs.receipts import Ack
from pisub.runs.spec import RunnerSpec
from pisub.runs.steering import CLOSED, NEVER_READ, NEVER_RELEASED, AckState, Mode
from tests.support.eventually import eventually
from tests.support.runner_runs import RunnerProcess, python_runner, submit


def send(process: RunnerProcess, text: str, mode: Mode = Mode.STEER) -> SteerRequest:
    request = make_request(text, now_ms=process.spec.submitted_at + 1, mode=mode, source="a test")
    request_steer(process.paths, request)
    process.process.send_signal(signal.SIGUSR2)
    return request


def states(process: RunnerProcess, request: SteerRequest) -> list[AckState]:
    return [ack.state for ack in read_acks(process.paths, request.id)]


def start(settings: Settings, directory: Path, source: str) -> RunnerProcess:
    process = RunnerProcess(settings, submit(settings, python_runner(directory, source), cwd=directory))
    process.wait_for("ready")
    return process


def test_an_agent_that_waits_for_messages_gets_them_and_the_sender_knows(settings: Settings, tmp_path: Path) -> None:
    source = """
        async def main(child):
            child.log("ready")
            first = await child.next_message()
            async for message in child.messages():
                return f"{first.text}/{first.source}/{message.text}"
    """
    process = start(settings, tmp_path, source)
    first = send(process, "go left")
    eventually(lambda: states(process, first) == [AckState.DELIVERED], what="the first message is delivered")
    second = send(process, "go on", Mode.AUTO)
    result = process.wait()
    assert (result.state, result.output) == (RunState.COMPLETE, "go left/a test/go on")
    assert states(process, second) == [AckState.DELIVERED]
    capability = read_capability(process.paths)
    assert capability is not None
    assert (capability.supported, capability.pid) == (True, process.process.pid)
    status = process.status()
    assert status is not None
    assert status.steering is not None
    assert (status.steering.total, status.steering.delivered, status.steering.failed) == (2, 2, 0)
    assert [(each.preview, each.state) for each in status.steering.recent] == [
        ("go left", "delivered"),
        ("go on", "delivered"),
    ]


def test_a_follow_up_is_queued_in_a_turn_and_delivered_in_the_next(settings: Settings, tmp_path: Path) -> None:
    source = """
        import asyncio
        async def main(child):
            with child.turn():
                child.log("ready")
                while not (child.cwd / "go").exists():
                    await asyncio.sleep(0.01)
                early = child.take_messages()
            with child.turn():
                late = child.take_messages()
            return f"{[each.text for each in early]} {[each.text for each in late]}"
    """
    process = start(settings, tmp_path, source)
    now = send(process, "now")
    eventually(lambda: not list(process.paths.steer_requests.iterdir()), what="the first is taken from the inbox")
    later = send(process, "later", Mode.FOLLOW_UP)
    eventually(lambda: states(process, later) == [AckState.QUEUED], what="the follow-up is queued")
    assert states(process, now) == []
    (tmp_path / "go").touch()
    assert process.wait().output == "['now'] ['later']"
    assert states(process, later) == [AckState.QUEUED, AckState.DELIVERED]
    assert states(process, now) == [AckState.DELIVERED]


def test_an_agent_that_never_reads_leaves_a_message_pending_and_then_failed(settings: Settings, tmp_path: Path) -> None:
    source = """
        import asyncio
        async def main(child):
            child.log("ready")
            while not (child.cwd / "go").exists():
                await asyncio.sleep(0.01)
            return "never looked"
    """
    process = start(settings, tmp_path, source)
    unread, queued = send(process, "look here"), send(process, "and here", Mode.FOLLOW_UP)
    eventually(lambda: states(process, queued) == [AckState.QUEUED], what="the follow-up is queued")
    assert states(process, unread) == []
    assert read_capability(process.paths) is None
    (tmp_path / "go").touch()
    assert process.wait().state is RunState.COMPLETE
    ended = read_acks(process.paths, unread.id)
    assert [(ack.state, ack.text) for ack in ended] == [(AckState.FAILED, NEVER_READ)]
    assert [ack.text for ack in read_acks(process.paths, queued.id)][1:] == [NEVER_RELEASED]
    assert is_inbox_closed(process.paths)


def test_a_program_of_the_user_s_cannot_be_steered_and_says_so(settings: Settings, tmp_path: Path) -> None:
    script = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)\nprint('done')"
    runner = RunnerSpec(type="external-cli", argv=("python3", "-c", script))
    process = RunnerProcess(settings, submit(settings, runner, cwd=tmp_path))
    eventually(lambda: read_capability(process.paths) is not None, what="the capability is known")
    capability = read_capability(process.paths)
    assert capability is not None
    assert not capability.supported
    request = send(process, "hello")
    eventually(lambda: states(process, request) == [AckState.FAILED], what="the message failed")
    (tmp_path / "go").touch()
    assert process.wait().state is RunState.COMPLETE


def test_messages_that_were_there_before_the_start_are_delivered_by_time(settings: Settings, tmp_path: Path) -> None:
    source = """
        async def main(child):
            texts = [(await child.next_message()).text for _ in range(3)]
            return " ".join(texts)
    """
    spec = submit(settings, python_runner(tmp_path, source), cwd=tmp_path)
    paths = Layout.of(settings).run(spec.run_id)
    for name, ts, text in (("z", 3, "three"), ("b", 2, "two"), ("a", 2, "one")):
        request_steer(paths, SteerRequest(id=name, ts=ts, message=text))
    assert RunnerProcess(settings, spec).wait().output == "one two three"


def test_a_message_to_a_run_that_is_being_stopped_fails(settings: Settings, tmp_path: Path) -> None:
    source = """
        import time
        def main(child):
            child.log("ready")
            time.sleep(600)
    """
    process = start(settings, tmp_path, source)
    process.request("stop")
    request = send(process, "too late")
    assert process.wait().state is RunState.STOPPED
    acks = read_acks(process.paths, request.id)
    assert [(ack.state, ack.text) for ack in acks] == [(AckState.FAILED, CLOSED)]
    assert isinstance(acks[0], Ack)


SLEEPER = """
    import asyncio
    async def main(child):
        child.log("ready")
        await asyncio.sleep(600)
"""


def test_an_interrupt_pauses_and_leaves_a_session_to_go_on_with(settings: Settings, tmp_path: Path) -> None:
    process = start(settings, tmp_path, SLEEPER)
    process.request("interrupt", by_signal=signal.SIGUSR2)
    result = process.wait()
    assert (result.state, result.success, result.exit_code, result.reason) == (RunState.PAUSED, False, 0, "interrupt")
    assert result.session_file == str(process.paths.session)
    status = process.status()
    assert status is not None
    assert (status.state, status.steps[0].status, status.remaining_ms is not None) == (RunState.PAUSED, "paused", True)
    assert process.event_types()[-3:] == ["subagent.run.paused", "subagent.step.paused", "subagent.run.completed"]


def test_of_a_stop_and_an_interrupt_in_one_inbox_the_stop_counts_and_both_are_taken(
    settings: Settings, tmp_path: Path
) -> None:
    process = start(settings, tmp_path, SLEEPER)
    process.request("interrupt")
    process.request("stop", by_signal=signal.SIGUSR2)
    assert process.wait().state is RunState.STOPPED
    assert "subagent.run.paused" not in process.event_types()
    assert not process.paths.request("interrupt").exists()
    assert not process.paths.request("stop").exists()


def test_an_interrupt_after_an_accepted_stop_does_nothing(settings: Settings, tmp_path: Path) -> None:
    source = """
        import time
        def main(child):
            child.log("ready")
            time.sleep(600)
    """
    process = start(settings, tmp_path, source)
    process.request("stop", by_signal=signal.SIGUSR2)
    eventually(lambda: process.paths.accepted("stop").exists(), what="the stop is taken")
    process.request("interrupt", by_signal=signal.SIGUSR2)
    assert process.wait().state is RunState.STOPPED
    assert "subagent.run.paused" not in process.event_types()


def test_tools_that_fail_in_a_row_are_shown_as_in_need_of_attention(settings: Settings, tmp_path: Path) -> None:
    source = """
        import asyncio, contextlib
        async def main(child):
            for _ in range(3):
                with contextlib.suppress(ValueError), child.tool("try"):
                    raise ValueError
            child.log("ready")
            await asyncio.sleep(600)
    """
    process = start(settings, tmp_path, source)

    def is_noted() -> bool:
        status = process.status()
        return status is not None and (status.activity_state, status.activity_reason, status.tool_count) == (
            "needs_attention",
            "tool_failures",
            3,
        )

    eventually(is_noted, what="the status says that tools fail")
    process.request("stop", by_signal=signal.SIGUSR2)
    process.wait()
    noted = [event.data for event in process.events() if event.type == "subagent.control"]
    assert [(each["activityState"], each["reason"]) for each in noted] == [("needs_attention", "tool_failures")]
