"""What a host refuses, and what it survives: strangers that ask, a broker that is killed with a dialog open."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

import pisub
from pisub.client.bus import Bus
from pisub.config import Settings
from pisub.errors import RefusedError, UnknownQuestionError, UsageError
from pisub.ids import new_id
from pisub.launch import find_broker
from pisub.process import own_identity, send_signal
from pisub.protocol.checkpoint import HOST_ROLE, AskCancelled, AskRequest, AskResult, Question
from pisub.protocol.runs import runner_address
from pisub.protocol.session import PeerKind
from pisub.record.layout import Layout
from pisub.record.model import AskRecord
from pisub.record.questions import open_ask
from pisub.testing import ScriptedAnswer, ScriptedHuman
from tests.support.eventually import eventually_async
from tests.support.host_project import Absent, make_asking_project
from tests.support.runner_runs import python_runner, submit


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_asking_project(tmp_path / "project")


def request(run_id: str, ask_id: str, *questions: Question) -> AskRequest:
    return AskRequest(ask_id=ask_id, run_id=run_id, agent="tester", questions=questions or (Question("?"),))


async def call(bus: Bus, message: AskRequest) -> AskResult:
    return await bus.call(f"role:{HOST_ROLE}", message, AskResult, timeout_s=20, scope="a-session")


def test_who_is_not_the_runs_runner_or_asks_for_what_is_not_on_record_is_refused(
    settings: Settings, tmp_path: Path
) -> None:
    async def scenario() -> None:
        spec = submit(settings, python_runner(tmp_path, "def main(child): ..."), cwd=tmp_path)
        layout, ask_id = Layout.of(settings), new_id()
        record = AskRecord(
            ask_id=ask_id,
            run_id=spec.run_id,
            session_id="a-session",
            agent="tester",
            questions=(Question("?"),),
            asked_at=1,
            asker=own_identity(),
        )
        open_ask(layout, record)
        address = runner_address(spec.run_id)
        async with (
            await Bus.connect(settings, kind=PeerKind.CLIENT) as stranger,
            await Bus.connect(settings, kind=PeerKind.RUNNER, address=address) as runner,
        ):
            human = ScriptedHuman([ScriptedAnswer(match="?", answer="yes", delay_ms=300)])
            async with pisub.host("a-session", human, settings=settings):
                with pytest.raises(RefusedError, match="cannot ask for run"):
                    await call(stranger, request(spec.run_id, ask_id))
                with pytest.raises(RefusedError, match="not what its record says"):
                    await call(runner, request(spec.run_id, ask_id, Question("Your password?")))
                with pytest.raises((UnknownQuestionError, pisub.errors.RemoteError)):
                    await call(runner, request(spec.run_id, new_id()))
                with pytest.raises(UsageError):
                    await call(runner, request(spec.run_id, "../../etc/passwd"))
                # Only the asker takes its question back.
                stranger.tell(f"role:{HOST_ROLE}", AskCancelled(ask_id=ask_id, reason="no"), scope="a-session")
                result = await call(runner, request(spec.run_id, ask_id))
                assert result.values == ("yes",)

    asyncio.run(scenario())


def test_a_broker_that_is_killed_with_a_dialog_open_costs_neither_the_dialog_nor_the_answer(
    settings: Settings, project: Path
) -> None:
    class Patient(Absent):
        release: asyncio.Event

        async def _wait(self, title: str) -> str | None:
            self.opened.append(title)
            await self.release.wait()
            return "left"

    async def scenario() -> None:
        human = Patient()
        human.release = asyncio.Event()
        async with pisub.host(dialogs=human) as host:
            run = await host.spawn("one", "which?", project)
            await eventually_async(lambda: human.opened)
            broker = find_broker(settings)
            assert broker is not None
            assert send_signal(broker.process, signal.SIGKILL)
            await eventually_async(lambda: (now := find_broker(settings)) is not None and now.epoch != broker.epoch)
            await eventually_async(lambda: host.client.bus.is_connected)
            human.release.set()
            assert await run.text() == "ok:left"
            assert human.opened == ["which?"]
            assert host.is_host
            again = await host.spawn("one", "and?", project)
            assert await again.text() == "ok:left"

    asyncio.run(scenario())
