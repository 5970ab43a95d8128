"""Two things happen to a run at once, or its surroundings die: there is one end, and nothing is lost."""

import asyncio
import os
import signal
from pathlib import Path

from pisub.client.bus import Bus, Sender
from pisub.config import Settings
from pisub.launch import find_broker
from pisub.protocol.checkpoint import HOST_ROLE, Answer, AskRequest, AskResult, AskStatus
from pisub.protocol.runs import RunState
from pisub.protocol.session import PeerKind
from pisub.record.results import read_result
from pisub.record.status import read_status
from tests.support.eventually import eventually
from tests.support.loops import in_loop
from tests.support.runner_runs import RunnerProcess, python_runner, submit

ROUNDS = 6


def test_a_stop_in_the_moment_of_the_natural_end_gives_one_end_that_never_changes(
    settings: Settings, tmp_path: Path
) -> None:
    source = """
        import pathlib, time
        def main(child):
            child.log("ready")
            gate = pathlib.Path(child.task)
            while not gate.exists():
                pass
            return "done"
    """
    runner = python_runner(tmp_path, source)
    ends: set[RunState] = set()
    for number in range(ROUNDS):
        gate = tmp_path / f"gate-{number}"
        process = RunnerProcess(settings, submit(settings, runner, cwd=tmp_path, task=str(gate)))
        process.wait_for("ready")
        first, second = (process.request, gate.touch) if number % 2 else (gate.touch, process.request)
        first()
        second()
        process.process.send_signal(signal.SIGUSR2)
        result = process.wait()
        status = read_status(process.paths)
        assert status is not None
        assert status.state is result.state
        assert process.event_types().count("subagent.run.completed") == 1
        assert read_result(process.paths) == result
        ends.add(result.state)
    assert ends <= {RunState.COMPLETE, RunState.STOPPED}


@in_loop
async def test_an_open_ask_survives_the_death_of_the_broker_and_is_asked_once(
    settings: Settings, tmp_path: Path
) -> None:
    source = """
        async def main(child):
            result = await child.ask("Which?")
            return f"{result.status} {result[0]}"
    """
    asked: list[str] = []
    is_asked, may_answer = asyncio.Event(), asyncio.Event()

    async def serve(request: AskRequest, _sender: Sender) -> AskResult:
        asked.append(request.ask_id)
        is_asked.set()
        await may_answer.wait()
        return AskResult(status=AskStatus.OK, answers=(Answer(value="still here", by="host", at=1),))

    bus = await Bus.connect(settings, kind=PeerKind.HOST, session="a-session")
    try:
        bus.serve(AskRequest, serve)
        await bus.claim(HOST_ROLE, "a-session")
        process = RunnerProcess(settings, submit(settings, python_runner(tmp_path, source), cwd=tmp_path))
        await asyncio.wait_for(is_asked.wait(), 30)
        broker = find_broker(settings)
        assert broker is not None
        os.kill(broker.process.pid, signal.SIGKILL)
        may_answer.set()
        result = await asyncio.to_thread(process.wait)
    finally:
        await bus.close()
    assert (result.state, result.output) == (RunState.COMPLETE, "ok still here")
    assert len(asked) == 1


def test_a_run_goes_on_and_completes_while_its_broker_dies(settings: Settings, tmp_path: Path) -> None:
    source = """
        import asyncio, pathlib
        async def main(child):
            while not pathlib.Path("go").exists():
                await asyncio.sleep(0.01)
            child.log("went on")
            return "done"
    """
    process = RunnerProcess(settings, submit(settings, python_runner(tmp_path, source), cwd=tmp_path))
    broker = eventually(lambda: find_broker(settings), what="the runner starts a broker")
    os.kill(broker.process.pid, signal.SIGKILL)
    (tmp_path / "go").touch()
    result = process.wait()
    assert (result.state, result.output) == (RunState.COMPLETE, "done")
    assert "went on" in [event.data.get("text") for event in process.events()]
