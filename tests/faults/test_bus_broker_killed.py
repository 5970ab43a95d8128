"""kill -9 of the broker: every call ends exactly once, nothing is lost, nothing is done twice."""

import asyncio
import signal

from pisub.client.bus import Bus, BusState
from pisub.config import Settings
from pisub.errors import OutcomeUnknownError
from pisub.launch import find_broker
from pisub.process import send_signal
from pisub.protocol.session import PeerKind
from tests.support.bus_peer import Echo, Handled, HowMany, Said, Say, peer_process, until_held
from tests.support.eventually import eventually_async

CALLS = 200


def kill_broker(settings: Settings) -> None:
    info = find_broker(settings)
    assert info is not None
    assert send_signal(info.process, signal.SIGKILL)


async def reconnected(*buses: Bus, epoch: str) -> None:
    await eventually_async(lambda: all(bus.is_connected and bus.epoch != epoch for bus in buses), what="all are back")


def test_calls_that_are_open_at_a_role_and_an_address_are_answered_once_after_it(settings: Settings) -> None:
    async def main() -> None:
        states: list[BusState] = []
        async with await Bus.connect(settings, kind=PeerKind.CLIENT) as bus:
            with peer_process("echo:1"):
                await bus.call("echo:1", HowMany(), Handled, timeout_s=20)  # which life of it there is, is known now
                bus.on_state(states.append)
                texts = [str(number) for number in range(CALLS)]
                calls = [
                    asyncio.create_task(
                        bus.call(
                            "role:echo" if number % 2 else "echo:1", Say(text=text, is_held=True), Said, timeout_s=60
                        )
                    )
                    for number, text in enumerate(texts)
                ]
                await until_held(bus, "echo:1", CALLS)
                epoch = bus.epoch
                kill_broker(settings)
                assert await asyncio.gather(*calls) == [Said(text=text, times=1) for text in texts]
                assert bus.epoch != epoch
                handled = await bus.call("echo:1", HowMany(), Handled, timeout_s=20)
                assert handled == Handled(times=dict.fromkeys(texts, 1), waiting=0)
                assert states == [BusState.DISCONNECTED, BusState.CONNECTED, BusState.RESYNC]

    asyncio.run(main())


def test_under_a_stream_of_calls_each_ends_once_and_is_handled_at_most_once(settings: Settings) -> None:
    async def main() -> None:
        async with await Bus.connect(settings, kind=PeerKind.CLIENT) as bus:
            with peer_process("echo:1"):
                ended: dict[str, Said | type[Exception]] = {}
                is_over = False

                async def ask(lane: int) -> None:
                    number = 0
                    while not is_over:
                        text = f"{lane}:{number}"
                        number += 1
                        assert text not in ended
                        try:
                            ended[text] = await bus.call("role:echo", Say(text=text), Said, timeout_s=60)
                        except OutcomeUnknownError as error:
                            ended[text] = type(error)

                lanes = [asyncio.create_task(ask(lane)) for lane in range(CALLS)]
                for _ in range(2):
                    epoch, seen = bus.epoch, len(ended)
                    await eventually_async(lambda seen=seen: len(ended) > seen + 2 * CALLS, what="traffic flows")
                    kill_broker(settings)
                    await reconnected(bus, epoch=epoch)
                seen = len(ended)
                await eventually_async(lambda: len(ended) > seen + 2 * CALLS, what="traffic flows again")
                is_over = True
                await asyncio.gather(*lanes)
                handled = (await bus.call("echo:1", HowMany(), Handled, timeout_s=20)).times
                answered = {text for text, outcome in ended.items() if isinstance(outcome, Said)}
                assert set(handled.values()) == {1}
                assert answered <= set(handled) <= set(ended)
                assert set(ended.values()) - {OutcomeUnknownError} <= {Said(text=text, times=1) for text in answered}
                assert len(ended) - len(answered) <= 2 * CALLS

    asyncio.run(main())


def test_roles_subscriptions_and_watches_outlive_it(settings: Settings) -> None:
    async def main() -> None:
        async with (
            await Bus.connect(settings, kind=PeerKind.CLIENT) as bus,
            await Bus.connect(settings, kind=PeerKind.CLIENT) as other,
        ):
            with peer_process("echo:1"):
                gone: list[object] = []
                got: list[object] = []
                granted: list[object] = []
                await bus.claim("host", "s", record_n=1)
                await bus.subscribe("topic", got.append)
                await bus.watch("echo:1", gone.append)
                bus.on_role(granted.append)
                before, epoch = bus.fence("host", "s"), bus.epoch
                kill_broker(settings)
                await reconnected(bus, other, epoch=epoch)
                await eventually_async(lambda: granted, what="the role is held under a new number")
                assert bus.fence("host", "s") not in (None, before)
                assert (await other.call("role:echo", Say(text="x"), Said, timeout_s=20)).text == "x"
                other.publish("topic", Say(text="x"))
                await eventually_async(lambda: got, what="the subscription is there")
                assert gone == []
            await eventually_async(lambda: gone, what="the watch is there")
            assert len(gone) == 1

    asyncio.run(main())


def test_a_stopped_broker_does_not_hold_up_a_close(settings: Settings) -> None:
    async def main() -> None:
        bus = await Bus.connect(settings, kind=PeerKind.CLIENT)
        Echo(bus)
        info = find_broker(settings)
        assert info is not None
        assert send_signal(info.process, signal.SIGSTOP)
        try:
            for number in range(400):  # each too large to share a message: more of them than the pipe holds
                bus.tell("nobody", Say(text=f"{number:040000}"))
            async with asyncio.timeout(5):
                assert not await bus.flush(0.05)
                await bus.close()
        finally:
            send_signal(info.process, signal.SIGCONT)

    asyncio.run(main())
