"""The bus against the real broker."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pisub.client.bus import Bus, BusState, Incoming, Sender
from pisub.config import Settings
from pisub.errors import (
    BrokerUnavailableError,
    CallTimeoutError,
    ClientClosedError,
    IdentityInUseError,
    InvalidArgumentError,
    NotDeliveredError,
    OutcomeUnknownError,
    RemoteError,
    RoleTakenError,
    StaleGenerationError,
)
from pisub.protocol.session import GoneReason, PeerKind, RoleGranted, Status, StatusReport, Terminated
from tests.support.bus_peer import Echo, Handled, HowMany, LetGo, Said, Say, peer_process, until_held
from tests.support.eventually import eventually_async

Work = Callable[[Bus, Bus], Awaitable[None]]


def with_two(settings: Settings, work: Work) -> None:
    """Run ``work`` with two clients: one that asks, and one called ``echo:1`` that serves."""

    async def main() -> None:
        async with (
            await Bus.connect(settings, kind=PeerKind.CLIENT) as asker,
            await Bus.connect(settings, kind=PeerKind.CLIENT, address="echo:1") as answerer,
        ):
            await work(asker, answerer)

    asyncio.run(main())


def test_a_call_to_an_address_and_to_a_role_is_answered(settings: Settings) -> None:
    async def work(asker: Bus, answerer: Bus) -> None:
        Echo(answerer)
        claimed = await answerer.claim("echo", "s")
        assert answerer.fence("echo", "s") is not None
        assert claimed.holder in ("", "echo:1")
        assert await asker.call("echo:1", Say(text="a"), Said, timeout_s=20) == Said(text="a", times=1)
        assert await asker.call("role:echo", Say(text="b"), Said, timeout_s=20, scope="s") == Said(text="b", times=1)

    with_two(settings, work)


def test_what_is_told_arrives_in_order(settings: Settings) -> None:
    async def work(asker: Bus, answerer: Bus) -> None:
        got: list[tuple[str, str]] = []
        answerer.on_tell(Say, lambda message, sender: got.append((message.text, sender.address)))
        sent = [str(number) for number in range(3_000)]
        for text in sent:
            asker.tell("echo:1", Say(text=text))
        assert await asker.flush(20)
        await eventually_async(lambda: len(got) == len(sent), what="all arrive")
        assert got == [(text, asker.address) for text in sent]

    with_two(settings, work)


def test_what_is_published_reaches_its_subscribers_until_they_leave(settings: Settings) -> None:
    async def work(asker: Bus, answerer: Bus) -> None:
        Echo(answerer)
        exact: list[Incoming] = []
        prefix: list[Incoming] = []
        other: list[Incoming] = []
        stop = await answerer.subscribe("topic:1", exact.append, scope="s")
        await answerer.subscribe("topic:", prefix.append, is_prefix=True)
        await answerer.subscribe("topic:1", other.append, scope="another")
        asker.publish("topic:1", Say(text="one"), scope="s")
        await asker.call("echo:1", HowMany(), Handled, timeout_s=20)
        assert [(each.topic, each.scope, each.decode(Say).text, each.sender.address) for each in exact] == [
            ("topic:1", "s", "one", asker.address)
        ]
        assert (len(prefix), other) == (1, [])
        stop()
        stop()
        await answerer.control(Status(), StatusReport)
        asker.publish("topic:1", Say(text="two"), scope="s")
        await asker.call("echo:1", HowMany(), Handled, timeout_s=20)
        assert (len(exact), len(prefix)) == (1, 2)

    with_two(settings, work)


def test_a_reply_on_a_topic_is_its_requester_s_and_seen_by_observers_whose_own_calls_go_on(settings: Settings) -> None:
    async def main() -> None:
        async with (
            await Bus.connect(settings, kind=PeerKind.CLIENT) as asker,
            await Bus.connect(settings, kind=PeerKind.CLIENT, address="rpc:1") as answerer,
            await Bus.connect(settings, kind=PeerKind.OBSERVER) as observer,
        ):
            seen: list[tuple[str, str, str]] = []

            def note(name: str) -> Callable[[Incoming], None]:
                return lambda incoming: seen.append((name, incoming.topic, incoming.decode(Said).text))

            held = asyncio.Event()

            async def answer(message: Say, _sender: Sender) -> Said:
                if message.is_held:
                    await held.wait()
                return Said(text=message.text, times=1)

            answerer.serve(Say, answer, reply_topic=lambda message: f"subagents:rpc:v1:reply:{message.text}")
            await observer.subscribe("subagents:rpc:v1:reply:q1", note("exact"), scope="s")
            await observer.subscribe("subagents:rpc:", note("prefix"), is_prefix=True)
            await observer.subscribe("subagents:rpc:", note("other session"), is_prefix=True, scope="elsewhere")
            # Both have a call open under the same number: the copy must not be taken for its answer.
            own = asyncio.create_task(
                observer.call("rpc:1", Say(text="own", is_held=True), Said, timeout_s=20, scope="s")
            )
            while asker._core._last_id < observer._core._last_id:
                asker._core.next_id()
            assert await asker.call("rpc:1", Say(text="q1"), Said, timeout_s=20, scope="s") == Said(text="q1", times=1)
            await eventually_async(lambda: len(seen) == 2, what="the observers see it")
            topic = "subagents:rpc:v1:reply:q1"
            assert sorted(seen) == [("exact", topic, "q1"), ("prefix", topic, "q1")]
            assert not own.done()
            held.set()
            assert await own == Said(text="own", times=1)

    asyncio.run(main())


def test_a_published_request_is_answered_to_its_requester_without_a_subscription(settings: Settings) -> None:
    async def work(asker: Bus, answerer: Bus) -> None:
        got: list[tuple[str, str]] = []
        asker.on_tell(Said, lambda message, sender: got.append((message.text, sender.address)))

        def answer(incoming: Incoming) -> None:
            said = Said(text=incoming.decode(Say).text, times=1)
            answerer.publish("subagents:rpc:v1:reply:7", said, to=incoming.sender.address)

        await answerer.subscribe("subagents:rpc:v1:request", answer)
        asker.publish("subagents:rpc:v1:request", Say(text="ping"))
        await eventually_async(lambda: got, what="the reply arrives")
        assert got == [("ping", "echo:1")]

    with_two(settings, work)


def test_the_first_claim_wins_and_the_one_that_waits_is_next(settings: Settings) -> None:
    async def work(asker: Bus, answerer: Bus) -> None:
        granted: list[RoleGranted] = []
        await answerer.claim("host", "s")
        with pytest.raises(RoleTakenError) as taken:
            await asker.claim("host", "s")
        assert taken.value.holder == "echo:1"
        asker.on_role(granted.append)
        waiting = await asker.claim("host", "s", wait=True)
        assert (waiting.generation, waiting.position, asker.fence("host", "s")) == (0, 1, None)
        stale = answerer.fence("host", "s")
        await answerer.release("host", "s")
        assert answerer.fence("host", "s") is None
        await eventually_async(lambda: granted, what="the role is granted")
        fence = asker.fence("host", "s")
        assert fence is not None
        assert granted == [RoleGranted(role="host", scope="s", generation=fence.generation)]
        Echo(asker)
        with pytest.raises(StaleGenerationError):
            await answerer.call(asker.address, Say(text="x"), Said, timeout_s=20, fence=stale)

    with_two(settings, work)


def test_the_callee_s_errors_are_the_caller_s(settings: Settings) -> None:
    async def work(asker: Bus, answerer: Bus) -> None:
        def refuse(_message: Say, _sender: Sender) -> Said:
            raise InvalidArgumentError("no such thing", field="text")

        async def bug(_message: HowMany, _sender: Sender) -> Said:
            raise ValueError("a secret")

        reported: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(repr(context.get("exception"))))
        answerer.serve(Say, refuse)
        answerer.serve(HowMany, bug)
        with pytest.raises(InvalidArgumentError, match="no such thing") as refused:
            await asker.call("echo:1", Say(text="x"), Said, timeout_s=20)
        assert refused.value.field == "text"
        with pytest.raises(RemoteError) as failed:
            await asker.call("echo:1", HowMany(), Said, timeout_s=20)
        assert (failed.value.code, "secret" in failed.value.message) == ("internal_error", False)
        assert reported == ["ValueError('a secret')"]
        with pytest.raises(RemoteError) as unknown:
            await asker.call("echo:1", LetGo(), Said, timeout_s=20)
        assert unknown.value.code == "not_served"

    with_two(settings, work)


def test_a_call_to_nobody_is_not_delivered_and_one_without_an_answer_times_out(settings: Settings) -> None:
    async def work(asker: Bus, answerer: Bus) -> None:
        Echo(answerer)
        with pytest.raises(NotDeliveredError):
            await asker.call("nobody", Say(text="x"), Said, timeout_s=20)
        with pytest.raises(CallTimeoutError):
            await asker.call("echo:1", Say(text="x", is_held=True), Said, timeout_s=0.05)
        answerer_bound = await asker.call("echo:1", Say(text="y"), Said, timeout_s=20)
        assert answerer_bound == Said(text="y", times=1)

    with_two(settings, work)


def test_a_thousand_calls_at_once_are_all_answered_once(settings: Settings) -> None:
    async def work(asker: Bus, answerer: Bus) -> None:
        Echo(answerer)
        texts = [str(number) for number in range(1_000)]
        said = await asyncio.gather(*(asker.call("echo:1", Say(text=text), Said, timeout_s=60) for text in texts))
        assert said == [Said(text=text, times=1) for text in texts]
        assert asker.ignored == answerer.ignored == 0

    with_two(settings, work)


def test_an_address_of_a_living_process_is_not_given_to_another(settings: Settings) -> None:
    async def main() -> None:
        with peer_process("echo:1"), pytest.raises(IdentityInUseError):
            await Bus.connect(settings, kind=PeerKind.CLIENT, address="echo:1")

    asyncio.run(main())


def test_a_killed_peer_is_reported_once_and_its_open_call_ends_unknown(settings: Settings) -> None:
    async def main() -> None:
        gone: list[Terminated] = []
        async with await Bus.connect(settings, kind=PeerKind.CLIENT) as bus:
            with peer_process("echo:1") as process:
                await bus.watch("echo:1", gone.append)
                call = asyncio.create_task(bus.call("echo:1", Say(text="x", is_held=True), Said, timeout_s=None))
                await until_held(bus, "echo:1", 1)
                os.kill(process.pid, signal.SIGKILL)
                with pytest.raises(OutcomeUnknownError):
                    await call
                await eventually_async(lambda: gone, what="the end is reported")
            assert [(each.address, each.reason) for each in gone] == [("echo:1", GoneReason.EXITED)]
            await bus.watch("echo:1", gone.append)
            await eventually_async(lambda: len(gone) == 2, what="a peer that is not there is reported at once")

    asyncio.run(main())


def test_a_close_ends_open_calls_and_releases_roles(settings: Settings) -> None:
    async def main() -> None:
        states: list[BusState] = []
        asker = await Bus.connect(settings, kind=PeerKind.CLIENT)
        answerer = await Bus.connect(settings, kind=PeerKind.CLIENT, address="echo:1")
        asker.on_state(states.append)
        echo = Echo(answerer)
        await asker.claim("host")
        calls = [asyncio.create_task(asker.call("echo:1", Say(text=str(n), is_held=True), Said, timeout_s=None))
                 for n in range(10)]  # fmt: skip
        await eventually_async(lambda: echo.waiting == 10, what="the calls are open")
        async with asyncio.timeout(3):
            await asker.close()
            await asker.close()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(each) for each in results] == [ClientClosedError] * 10
        with pytest.raises(ClientClosedError):
            asker.tell("echo:1", Say(text="x"))
        with pytest.raises(ClientClosedError):
            await asker.call("echo:1", Say(text="x"), Said, timeout_s=1)
        assert states == [BusState.CLOSED]
        await eventually_claim(answerer)
        await answerer.close()

    asyncio.run(main())


async def eventually_claim(bus: Bus) -> None:
    async with asyncio.timeout(20):
        granted = asyncio.Event()
        bus.on_role(lambda _: granted.set())
        claimed = await bus.claim("host", wait=True)
        if not claimed.generation:
            await granted.wait()


def test_without_a_broker_and_without_leave_to_start_one_there_is_no_connection(settings: Settings) -> None:
    async def main() -> None:
        with pytest.raises(BrokerUnavailableError):
            await Bus.connect(settings, kind=PeerKind.CLIENT, start_broker=False)

    asyncio.run(main())


def test_what_cannot_be_an_address_a_role_or_a_topic_is_refused_here(settings: Settings) -> None:
    async def work(asker: Bus, answerer: Bus) -> None:
        with pytest.raises(InvalidArgumentError):
            await Bus.connect(settings, kind=PeerKind.CLIENT, address="no spaces")
        with pytest.raises(InvalidArgumentError):
            await asker.claim("Not A Role")
        with pytest.raises(InvalidArgumentError):
            asker.publish("", Say(text="x"))

    with_two(settings, work)


def test_a_bus_that_is_cancelled_while_connecting_leaves_nothing_open(tmp_path: Path) -> None:
    async def main() -> None:
        connecting = asyncio.create_task(Bus.open(lambda: f"ipc://{tmp_path}/s", kind=PeerKind.CLIENT))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting

    asyncio.run(main())


def test_handlers_of_prepare_are_there_before_anybody_can_reach_the_peer(settings: Settings) -> None:
    async def main() -> None:
        async with await Bus.connect(settings, kind=PeerKind.CLIENT) as asker:
            # Parked by the fresh broker, or asked again until the address is there: the first that arrives is served.
            async def ask() -> Said:
                while True:
                    try:
                        return await asker.call("late:1", Say(text="you"), Said, timeout_s=30)
                    except NotDeliveredError:
                        await asyncio.sleep(0)

            asking = asyncio.create_task(ask())

            heard: list[str] = []

            def prepare(bus: Bus) -> None:
                assert not bus.is_connected
                bus.subscribe_first("news", lambda incoming: heard.append(incoming.decode(Say).text))
                bus.serve(Say, lambda message, _: Said(text=message.text, times=1))

            async with await Bus.connect(settings, kind=PeerKind.CLIENT, address="late:1", prepare=prepare):
                assert await asking == Said(text="you", times=1)
                asker.publish("news", Say(text="at once"))
                await eventually_async(lambda: heard == ["at once"], what="what it subscribed to first arrives")

    asyncio.run(main())
