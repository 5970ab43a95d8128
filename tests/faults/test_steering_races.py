"""Messages that meet the end of their run: each is delivered, said to have failed, or refused, and none is left."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pisub.client.steering import read_receipt, send_message
from pisub.config import Settings
from pisub.errors import RefusedError
from pisub.protocol.runs import RunState
from pisub.record.layout import Layout
from pisub.record.steering import SteerRequest, is_inbox_closed
from pisub.runs.receipts import TargetState
from pisub.runs.reconcile import reconcile
from pisub.runs.steering import Mode
from tests.support.eventually import eventually
from tests.support.runner_runs import RunnerProcess, python_runner, submit

SENDERS = 60


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize("seed", range(3))
def test_messages_sent_while_a_run_ends_are_never_left_without_a_word(
    settings: Settings, tmp_path: Path, seed: int
) -> None:
    source = """
        async def main(child):
            child.log("ready")
            count = 0
            async for message in child.messages():
                count += 1
                if message.text == "end":
                    return f"{count}"
    """
    layout = Layout.of(settings)
    process = RunnerProcess(settings, submit(settings, python_runner(tmp_path, source), cwd=tmp_path))
    process.wait_for("ready")
    run_id = process.spec.run_id
    modes = list(Mode)

    def send(number: int) -> SteerRequest | None:
        text = "end" if number == 20 + seed * 10 else "hello"
        try:
            _, request = send_message(layout, run_id, text, now_ms=now_ms(), mode=modes[number % 3])
        except RefusedError as error:
            assert error.code == "inbox_closed"  # noqa: PT017  # any other refusal is a failure
            return None
        process.process.send_signal(signal.SIGUSR2)
        return request

    with ThreadPoolExecutor(8) as pool:
        requests = [request for request in pool.map(send, range(SENDERS)) if request is not None]
    result = process.wait()
    assert result.state is RunState.COMPLETE
    receipts = [read_receipt(layout, run_id, request, now_ms=now_ms()) for request in requests]
    states = [receipt.targets[0].state for receipt in receipts]
    assert set(states) <= {TargetState.DELIVERED, TargetState.FAILED}
    assert states.count(TargetState.DELIVERED) == int(result.output)
    assert list(process.paths.steer_requests.iterdir()) == []


def test_messages_to_a_run_that_is_killed_fail_when_its_record_is_finished(settings: Settings, tmp_path: Path) -> None:
    source = """
        import asyncio
        async def main(child):
            child.log("ready")
            await asyncio.sleep(600)
    """
    layout = Layout.of(settings)
    process = RunnerProcess(settings, submit(settings, python_runner(tmp_path, source), cwd=tmp_path))
    process.wait_for("ready")
    run_id = process.spec.run_id
    _, taken = send_message(layout, run_id, "taken", now_ms=now_ms())
    _, queued = send_message(layout, run_id, "queued", now_ms=now_ms(), mode=Mode.FOLLOW_UP)
    process.process.send_signal(signal.SIGUSR2)

    def state(request: SteerRequest) -> TargetState:
        return read_receipt(layout, run_id, request, now_ms=now_ms()).targets[0].state

    eventually(lambda: state(queued) is TargetState.QUEUED, what="the follow-up is queued")
    assert state(taken) is TargetState.ROUTED
    process.process.send_signal(signal.SIGSTOP)
    _, unseen = send_message(layout, run_id, "unseen", now_ms=now_ms())
    process.process.kill()
    process.process.wait()
    assert reconcile(layout, run_id, now_ms=now_ms()).state is RunState.FAILED
    assert is_inbox_closed(process.paths)
    assert [state(each) for each in (taken, queued, unseen)] == [TargetState.FAILED] * 3
    with pytest.raises(RefusedError):
        send_message(layout, run_id, "late", now_ms=now_ms())
