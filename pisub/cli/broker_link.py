"""Short visits to a broker that is up: say something, ask something, leave. None is started here."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from pisub.client.bus import Bus
from pisub.client.hosted import ask_host
from pisub.client.liveness import Life
from pisub.config import Settings
from pisub.errors import BrokerUnavailableError, OutcomeUnknownError
from pisub.launch import find_broker, silent_broker
from pisub.protocol.base import Message
from pisub.protocol.session import Done, PeerKind, Shutdown, Status, StatusReport

_CONNECT_S: Final = 2.0
_FLUSH_S: Final = 0.5
_ANSWER_S: Final = 2.0


def send(settings: Settings, addresses: tuple[str, ...], message: Message, *, session_id: str) -> bool:
    """Tell several addresses or roles of a session the same. Returns whether all of it left this process.

    Raises:
        BrokerUnavailableError: No broker answers.
    """

    async def visit() -> bool:
        async with connected(settings, session_id) as bus:
            for address in addresses:
                bus.tell(address, message, scope=session_id)
            return await bus.flush(_FLUSH_S)

    return asyncio.run(visit())


def read_status(settings: Settings) -> StatusReport:
    """Ask the broker for its figures.

    Raises:
        BrokerUnavailableError: No broker answers.
    """

    async def visit() -> StatusReport:
        async with connected(settings) as bus:
            return await bus.control(Status(), StatusReport)

    return asyncio.run(visit())


def ask_lives(settings: Settings, session_ids: Sequence[str]) -> dict[str, Life]:
    """Ask the hosts of sessions, all at once, whether they are live.

    Raises:
        BrokerUnavailableError: No broker answers.
    """

    async def visit() -> list[Life]:
        async with connected(settings) as bus:
            return await asyncio.gather(*(ask_host(bus, each) for each in session_ids))

    return {life.session_id: life for life in asyncio.run(visit())}


def shut_down(settings: Settings) -> None:
    """Ask the broker to leave.

    Raises:
        BrokerUnavailableError: No broker answers.
    """

    async def visit() -> None:
        async with connected(settings) as bus:
            # It may be gone before its answer is read: the caller looks at the process.
            with contextlib.suppress(OutcomeUnknownError):
                await bus.control(Shutdown(), Done, timeout_s=_ANSWER_S)

    asyncio.run(visit())


@contextlib.asynccontextmanager
async def connected(settings: Settings, session_id: str = "") -> AsyncGenerator[Bus]:
    """Connect for a visit.

    Raises:
        BrokerUnavailableError: No broker answers.
    """
    try:
        async with asyncio.timeout(_CONNECT_S):
            bus = await Bus.connect(settings, kind=PeerKind.CLIENT, session=session_id, start_broker=False)
    except TimeoutError:
        found = find_broker(settings)
        raise silent_broker(found) if found else BrokerUnavailableError("The broker has left.") from None
    try:
        yield bus
    finally:
        await bus.close()
