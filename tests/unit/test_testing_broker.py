"""The broker in memory: what programs do with each other over the bus, without sockets and with fake time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pisub import testing
from pisub.client.bus import Bus, BusState
from pisub.errors import CallTimeoutError, IdentityInUseError, NotDeliveredError, OutcomeUnknownError, RoleTakenError
from pisub.protocol.checkpoint import AskRequest, AskResult, AskStatus, Question
from pisub.protocol.limits import MAX_BODY_BYTES
from pisub.protocol.session import GoneReason, Terminated
from pisub.testing import FakeClock
from tests.support.bus_peer import Said, Say


def played(main: Any, *, clock: FakeClock | None = None) -> Any:
    return testing.run(main(), clock=clock)


def test_calls_topics_and_roles_are_as_with_processes() -> None:
    async def main() -> None:
        async with testing.broker() as broker:
            server, client = await broker.connect(address="echo:1"), await broker.connect()
            heard: list[str] = []
            server.serve(Say, lambda message, _: Said(text=message.text, times=1))
            assert (await client.call("echo:1", Say(text="a"), Said, timeout_s=5)).text == "a"
            await client.subscribe("news", lambda incoming: heard.append(incoming.decode(Say).text))
            server.publish("news", Say(text="b"))
            assert (await server.claim("echo", "s")).generation > 0
            with pytest.raises(RoleTakenError):
                await client.claim("echo", "s")
            assert (await client.call("role:echo", Say(text="c"), Said, timeout_s=5, scope="s")).text == "c"
            assert heard == ["b"]
            with pytest.raises(NotDeliveredError):
                await client.call("nobody:1", Say(text="d"), Said, timeout_s=5)
            with pytest.raises(IdentityInUseError):
                await broker.connect(address="echo:1")
            await server.close()
            await client.close()

    played(main)


def test_a_day_of_patience_passes_in_no_time() -> None:
    clock = FakeClock()

    async def main() -> None:
        async with testing.broker() as broker:
            silent, client = await broker.connect(address="silent:1"), await broker.connect()
            silent.serve(Say, _never)
            with pytest.raises(CallTimeoutError):
                await client.call("silent:1", Say(text="a"), Said, timeout_s=3_600)
            await client.close()
            await silent.close()

    before = clock.monotonic()
    played(main, clock=clock)
    assert clock.monotonic() - before == pytest.approx(3_600, abs=30)


async def _never(_message: Say, _sender: object) -> Said:
    await asyncio.Event().wait()
    raise AssertionError


def test_the_death_of_a_process_is_told_of_and_ends_its_calls() -> None:
    async def main() -> None:
        async with testing.broker() as broker:
            server, client = await broker.connect(address="echo:1"), await broker.connect()
            twin = await broker.connect(address="twin:1", beside=server)
            begun = asyncio.Event()

            async def begin(message: Say, sender: object) -> Said:
                begun.set()
                return await _never(message, sender)

            server.serve(Say, begin)
            gone: list[Terminated] = []
            for address in ("echo:1", "twin:1"):
                await client.watch(address, gone.append)
            call = asyncio.ensure_future(client.call("echo:1", Say(text="a"), Said, timeout_s=None))
            await begun.wait()
            broker.kill(server)
            with pytest.raises(OutcomeUnknownError):
                await call
            assert {each.address: each.reason for each in gone} == {
                "echo:1": GoneReason.EXITED,
                "twin:1": GoneReason.EXITED,
            }
            again = await broker.connect(address="echo:1")
            for bus in (client, again, server, twin):
                await bus.close()

    played(main)


@pytest.mark.parametrize("fault", ["cut", "restart"])
def test_a_lost_connection_and_a_lost_broker_are_survived(fault: str) -> None:
    async def main() -> None:
        async with testing.broker() as broker:
            server, client = await broker.connect(address="echo:1"), await broker.connect()
            server.serve(Say, lambda message, _: Said(text=message.text, times=1))
            await server.claim("echo", "s")
            states: list[BusState] = []
            client.on_state(states.append)
            epoch = client.epoch
            if fault == "cut":
                broker.cut(client)
            else:
                broker.restart()
            assert (await client.call("role:echo", Say(text="a"), Said, timeout_s=30, scope="s")).text == "a"
            assert states[:2] == [BusState.DISCONNECTED, BusState.CONNECTED]
            assert (client.epoch == epoch) is (fault == "cut")
            await client.close()
            await server.close()

    played(main)


def test_handlers_are_there_from_the_start_and_large_bodies_go_by_a_file() -> None:
    async def main() -> None:
        async with testing.broker() as broker:
            asked: list[AskRequest] = []

            def answer(request: AskRequest, _sender: object) -> AskResult:
                asked.append(request)
                return AskResult(status=AskStatus.NO_HOST, answers=(None,) * len(request.questions))

            def prepare(bus: Bus) -> None:
                bus.serve(AskRequest, answer)

            server, client = await broker.connect(address="host:1", prepare=prepare), await broker.connect()
            questions = tuple(Question("x" * 8_000) for _ in range(16))
            request = AskRequest(ask_id="a", run_id="r", agent="a", questions=questions)
            assert (await client.call("host:1", request, AskResult, timeout_s=5)).status is AskStatus.NO_HOST
            assert asked == [request]
            assert sum(len(each.text) for each in questions) > MAX_BODY_BYTES
            await client.close()
            await server.close()

    played(main)
