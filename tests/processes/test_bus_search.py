"""A bus that is closed leaves no thread behind that still looks for a broker, or starts one."""

import asyncio
import threading
import time

import pytest

from pisub.client.bus import Bus
from pisub.config import Settings
from pisub.errors import BrokerUnavailableError
from pisub.launch import ensure_broker, find_broker
from pisub.paths import ensure_private_dir, runtime_dir
from pisub.protocol.session import PeerKind
from pisub.start_lock import START_LOCK, StartLock
from tests.support.eventually import eventually, eventually_async
from tests.support.leaks import open_descriptors


def searches() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "pisub-find-broker"]


def holds_the_turn() -> bool:
    return sum(START_LOCK in target for target in open_descriptors().values()) > 0


def test_a_connect_that_is_cancelled_while_another_starts_the_broker_ends_its_search(settings: Settings) -> None:
    async def scenario() -> None:
        connecting = asyncio.create_task(Bus.connect(settings, kind=PeerKind.CLIENT))
        await eventually_async(searches, what="the search waits for its turn")
        connecting.cancel()
        await asyncio.wait([connecting])
        # Its last word is what was waited for; the thread itself has a few instructions left.
        await eventually_async(lambda: not searches(), what="the search has ended")

    with StartLock(ensure_private_dir(runtime_dir(settings))) as other:
        assert other.take()
        asyncio.run(scenario())
    assert find_broker(settings) is None


def test_a_connect_that_is_cancelled_while_it_starts_the_broker_leaves_no_search(settings: Settings) -> None:
    async def scenario() -> None:
        connecting = asyncio.create_task(Bus.connect(settings, kind=PeerKind.CLIENT))
        await eventually_async(holds_the_turn, what="the search has its turn")
        connecting.cancel()
        await asyncio.wait([connecting])
        # Its last word is what was waited for; the thread itself has a few instructions left.
        await eventually_async(lambda: not searches(), what="the search has ended")
        assert not holds_the_turn()

    asyncio.run(scenario())
    # Whether its broker came up before or not: the next one who looks is not told of a failure.
    assert ensure_broker(settings).process.pid


def test_a_search_that_is_given_up_ends_at_once(settings: Settings) -> None:
    began = time.monotonic()
    with StartLock(ensure_private_dir(runtime_dir(settings))) as other:
        assert other.take()
        with pytest.raises(BrokerUnavailableError, match="was given up"):
            ensure_broker(settings, is_given_up=lambda: True)
    assert time.monotonic() - began < 5
    eventually(lambda: searches() == [])
