"""A death is told on the bus, where there is a broker: once, and by nobody who would start one."""

import asyncio
import os
from pathlib import Path

from pisub.client.bus import Bus
from pisub.config import Settings
from pisub.launch import find_broker
from pisub.launchers.local import LocalLauncher
from pisub.protocol.runs import (
    ASYNC_COMPLETE_TOPIC,
    PROCESS_TERMINAL_TOPIC,
    AsyncComplete,
    ProcessTerminal,
    RunState,
)
from pisub.protocol.session import PeerKind
from pisub.record.layout import Layout
from tests.support.eventually import eventually_async
from tests.support.nursery_launches import launcher, proof_of, submit_agent, submitted

_EVENTS = AsyncComplete | ProcessTerminal


def test_the_end_of_a_killed_runner_is_told_once_to_its_session(settings: Settings, tmp_path: Path) -> None:
    asyncio.run(listen_to_a_death(settings, tmp_path))


async def listen_to_a_death(settings: Settings, tmp_path: Path) -> None:
    message = submit_agent(settings, tmp_path, "stay")
    bus = await Bus.connect(settings, kind=PeerKind.OBSERVER, session="test")
    try:
        heard: list[object] = []
        for topic in (ASYNC_COMPLETE_TOPIC, PROCESS_TERMINAL_TOPIC):
            await bus.subscribe(topic, lambda incoming: heard.append(incoming.decode(_EVENTS)), scope="test")
        launched = await LocalLauncher(settings).launch(message)
        await eventually_async((tmp_path / "here").exists)
        os.kill(launched.process.pid, 9)
        ended = ProcessTerminal(run_id=message.run_id, state="observed", signal="SIGKILL")
        await eventually_async(lambda: ended in heard, what="the process's end is told")
        done = [each for each in heard if isinstance(each, AsyncComplete)]
        assert [(each.run_id, each.state) for each in done] == [(message.run_id, RunState.FAILED)]
        assert done[0].run_dir == str(Layout.of(settings).run(message.run_id).dir)
        assert len(heard) == 2
    finally:
        await bus.close()


def test_nobody_starts_a_broker_to_tell_of_a_death(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    message = submitted(settings, tmp_path)
    launcher(settings, "wait").launch_blocking(message)
    proof_of(settings, message)
    assert find_broker(settings) is None
