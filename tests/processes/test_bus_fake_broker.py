"""What the bus does with a broker that leaves, is silent, forgets, or sends what makes no sense."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pisub.client.bus import Bus, BusState
from pisub.errors import CallTimeoutError, IdentityInUseError, NotDeliveredError, OutcomeUnknownError
from pisub.protocol.delivery import Header, Kind, Priority, Stamp
from pisub.protocol.session import Failure, PeerKind
from tests.support.bus_peer import Echo, LetGo, Said, Say
from tests.support.eventually import eventually_async
from tests.support.fake_broker import FakeBroker, Received

Work = Callable[[FakeBroker, Bus, Bus], Awaitable[None]]


def with_two(directory: Path, work: Work) -> None:
    async def main() -> None:
        async with (
            FakeBroker(directory / "broker.sock") as broker,
            await Bus.open(broker.locate, kind=PeerKind.CLIENT, address="asker") as asker,
            await Bus.open(broker.locate, kind=PeerKind.CLIENT, address="echo:1") as answerer,
        ):
            await work(broker, asker, answerer)

    asyncio.run(main())


def test_what_is_sent_without_a_broker_goes_out_after_the_next_hello(private_places: Path) -> None:
    async def work(broker: FakeBroker, asker: Bus, answerer: Bus) -> None:
        Echo(answerer)
        got: list[str] = []
        answerer.on_tell(Say, lambda message, _: got.append(message.text))
        broker.kill()
        await eventually_async(lambda: not asker.is_connected and not answerer.is_connected)
        broker.received.clear()
        call = asyncio.create_task(asker.call("echo:1", Say(text="call"), Said, timeout_s=20))
        asker.tell("echo:1", Say(text="1"))
        asker.tell("echo:1", Say(text="2"))
        assert not await asker.flush(0)
        broker.start()
        assert await call == Said(text="call", times=1)
        assert await asker.flush(20)
        await eventually_async(lambda: got == ["1", "2"], what="the tells arrive in order")
        first: dict[bytes, int] = {}
        for each in broker.received:
            first.setdefault(each.route, each.header.kind)
        assert set(first.values()) == {Kind.HELLO}

    with_two(private_places, work)


def test_an_answer_that_was_lost_with_the_broker_is_given_again_and_not_made_again(private_places: Path) -> None:
    async def work(broker: FakeBroker, asker: Bus, answerer: Bus) -> None:
        echo = Echo(answerer)
        await asker.call("echo:1", Say(text="x"), Said, timeout_s=20)
        broker.intercept = lambda received: received.header.kind == Kind.REPLY
        call = asyncio.create_task(asker.call("echo:1", Say(text="y"), Said, timeout_s=20))
        await broker.until(lambda: len(broker.of(Kind.REPLY)) == 2)
        broker.kill()
        await eventually_async(lambda: not asker.is_connected and not answerer.is_connected)
        broker.intercept = lambda _: False
        broker.start()
        assert await call == Said(text="y", times=1)
        assert echo.times == {"x": 1, "y": 1}
        resent = [each.header for each in broker.of(Kind.CALL)][-1]
        assert resent.to == f"echo:1@{answerer.incarnation}"

    with_two(private_places, work)


def test_a_call_that_nobody_is_known_to_have_is_not_repeated(private_places: Path) -> None:
    async def work(broker: FakeBroker, asker: Bus, answerer: Bus) -> None:
        broker.intercept = lambda received: received.header.kind == Kind.CALL
        unknown = asyncio.create_task(asker.call("role:none", Say(text="x"), Said, timeout_s=20))
        harmless = asyncio.create_task(asker.call("echo:1", Say(text="y"), Said, timeout_s=20, idempotent=True))
        Echo(answerer)
        await broker.until(lambda: len(broker.of(Kind.CALL)) == 2)
        broker.kill()
        broker.intercept = lambda _: False
        await eventually_async(lambda: not asker.is_connected)
        broker.start()
        with pytest.raises(OutcomeUnknownError):
            await unknown
        assert await harmless == Said(text="y", times=1)

    with_two(private_places, work)


def test_a_broker_that_says_it_leaves_is_left_and_looked_for_at_once(private_places: Path) -> None:
    async def work(broker: FakeBroker, asker: Bus, _answerer: Bus) -> None:
        states: list[BusState] = []
        asker.on_state(states.append)
        greeted = len(broker.hellos)
        broker.leave(broker.route_of("asker"))
        await broker.until(lambda: len(broker.hellos) > greeted)
        await eventually_async(lambda: asker.is_connected)
        assert states == [BusState.DISCONNECTED, BusState.CONNECTED, BusState.RESYNC]

    with_two(private_places, work)


def test_a_silent_broker_is_left_and_greeted_again(private_places: Path) -> None:
    async def main() -> None:
        async with FakeBroker(private_places / "broker.sock") as broker:
            broker.is_welcoming = False
            connecting = asyncio.create_task(Bus.open(broker.locate, kind=PeerKind.CLIENT))
            await broker.until(lambda: len(broker.hellos) == 2)
            assert broker.received[0].route != broker.received[1].route
            broker.is_welcoming = True
            async with await connecting as bus:
                assert bus.is_connected

    asyncio.run(main())


def test_a_broker_that_forgot_us_is_greeted_again_and_gets_the_open_calls(private_places: Path) -> None:
    async def work(broker: FakeBroker, asker: Bus, answerer: Bus) -> None:
        Echo(answerer)
        await asker.call("echo:1", Say(text="x"), Said, timeout_s=20)
        del broker.peers["asker"]
        assert await asker.call("echo:1", Say(text="y"), Said, timeout_s=20) == Said(text="y", times=1)
        assert [each.address for each in broker.hellos] == ["asker", "echo:1", "asker"]

    with_two(private_places, work)


def test_a_refused_hello_is_the_connect_s_error(private_places: Path) -> None:
    async def main() -> None:
        async with FakeBroker(private_places / "broker.sock") as broker:

            def refuse(received: Received) -> bool:
                broker.fail(received, "identity_in_use")
                return True

            broker.intercept = refuse
            with pytest.raises(IdentityInUseError):
                await Bus.open(broker.locate, kind=PeerKind.CLIENT)

    asyncio.run(main())


def test_what_makes_no_sense_is_counted_and_costs_nothing_else(private_places: Path) -> None:
    async def work(broker: FakeBroker, asker: Bus, answerer: Bus) -> None:
        Echo(answerer)
        route = broker.route_of("asker")
        for frames in ((b"", b""), (b"\x90", b"psb\x01\x00\x00"), (b"x", b"y", b"z", b"more")):
            broker.send_raw(route, *frames)
        broker.send(route, Header(kind=99))
        broker.send(route, Header(kind=Kind.WELCOME), b"\xc1")
        broker.send(route, Header(kind=Kind.TELL), b"\xc1")
        broker.send(route, Header(kind=Kind.REPLY, correlation_id=12_345), b"\x80")
        broker.send(route, Header(kind=Kind.FAIL, correlation_id=12_345), Failure(code="late", message=""))
        broker.send(route, Header(kind=Kind.DONE), b"\xc1", stamp=Stamp(sender="echo:1"))
        broker.send(route, Header(kind=Kind.TELL), LetGo(), stamp=Stamp(sender="echo:1"))
        await eventually_async(lambda: asker.ignored == 10, what="all are counted")
        assert await asker.call("echo:1", Say(text="x"), Said, timeout_s=20) == Said(text="x", times=1)

    with_two(private_places, work)


def test_dropped_messages_are_announced(private_places: Path) -> None:
    async def work(broker: FakeBroker, asker: Bus, _answerer: Bus) -> None:
        states: list[BusState] = []
        dropped: list[int] = []
        await asker.subscribe("topic", lambda incoming: dropped.append(incoming.dropped))
        stop = asker.on_state(states.append)
        header = Header(kind=Kind.PUBLISH, priority=Priority.DROPPABLE, topic="topic")
        broker.send(broker.route_of("asker"), header, LetGo(), stamp=Stamp(sender="x", dropped=3))
        await eventually_async(lambda: dropped == [3])
        assert states == [BusState.RESYNC]
        stop()
        broker.send(broker.route_of("asker"), header, LetGo(), stamp=Stamp(sender="x", dropped=4))
        await eventually_async(lambda: dropped == [3, 4])
        assert states == [BusState.RESYNC]

    with_two(private_places, work)


def test_a_call_times_out_by_the_caller_s_own_clock(private_places: Path) -> None:
    async def work(broker: FakeBroker, asker: Bus, _answerer: Bus) -> None:
        broker.intercept = lambda received: received.header.kind == Kind.CALL
        with pytest.raises(CallTimeoutError):
            await asker.call("echo:1", Say(text="x"), Said, timeout_s=0.02)
        cancelled = asyncio.create_task(asker.call("echo:1", Say(text="x"), Said, timeout_s=None))
        await broker.until(lambda: len(broker.of(Kind.CALL)) == 2)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled

    with_two(private_places, work)


def test_an_outbox_that_is_full_refuses_and_a_call_in_it_can_be_cancelled(private_places: Path) -> None:
    async def work(broker: FakeBroker, asker: Bus, _answerer: Bus) -> None:
        broker.kill()
        await eventually_async(lambda: not asker.is_connected)
        text = "x" * 60_000
        for _ in range(139):  # 8 MiB
            asker.tell("echo:1", Say(text=text))
        with pytest.raises(NotDeliveredError):
            asker.tell("echo:1", Say(text=text))
        with pytest.raises(NotDeliveredError):
            await asker.call("echo:1", Say(text=text), Said, timeout_s=20)

    with_two(private_places, work)


def test_a_reconnect_restores_what_was_claimed_and_subscribed(private_places: Path) -> None:
    async def work(broker: FakeBroker, asker: Bus, answerer: Bus) -> None:
        await asker.claim("host", "s")
        got: list[str] = []
        await asker.subscribe("topic", lambda incoming: got.append(incoming.decode(Say).text))
        before = asker.fence("host", "s")
        broker.kill()
        await eventually_async(lambda: not asker.is_connected and not answerer.is_connected)
        broker.start()
        await eventually_async(lambda: asker.is_connected and answerer.is_connected)
        assert asker.fence("host", "s") not in (None, before)
        answerer.publish("topic", Say(text="x"))
        await eventually_async(lambda: got == ["x"])

    with_two(private_places, work)
