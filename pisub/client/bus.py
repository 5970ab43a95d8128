"""The bus: how a process of pisub talks with the others.

Owns the public interface: tell, call, publish, serve; what is asked of the broker itself is in ``bus_requests``.
Everything runs on one asyncio loop, in one thread. What happens on a lost broker is in ``bus_core``; how frames travel,
in ``pisub.transport``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Self, TypeVar

import zmq

from pisub.client.bus_core import BusCore, Phase
from pisub.client.bus_handlers import Handlers
from pisub.client.bus_hello import Identity
from pisub.client.bus_requests import BrokerRequests
from pisub.client.bus_search import Locator
from pisub.client.bus_shell import BusShell, MakeTransport
from pisub.client.bus_types import BusState, Incoming, Sender, Unsubscriber
from pisub.config import Settings
from pisub.errors import BrokerUnavailableError, ClientClosedError, FrameTooLargeError, InvalidArgumentError
from pisub.protocol.base import Message
from pisub.protocol.codec import decode, encode, pack
from pisub.protocol.delivery import Fence, Flag, Header, Kind, Priority
from pisub.protocol.limits import MAX_TOPIC_CHARS
from pisub.protocol.session import (
    PeerKind,
    RoleGranted,
)

__all__ = ["Bus", "BusState", "Incoming", "Sender", "Unsubscriber"]

T = TypeVar("T")
M = TypeVar("M", bound=Message)

#: Time for the first Welcome: ten seconds to start a broker, and some for its first answer.
CONNECT_TIMEOUT_S: Final = 15.0
#: What a close waits for the outbox, and again for handlers that were cancelled.
_CLOSE_FLUSH_S: Final = 0.5


class Bus(BrokerRequests):
    """A client of the broker, kept connected until it is closed.

    Delivery: a message is handed over at most once, in order per sender and receiver while both live. A call ends in
    exactly one way. What was told or published around the death of a broker may be lost; what must not be is in files.
    Make one with ``connect``; use it on the loop where it was made, and ``close`` it.
    """

    def __init__(
        self,
        identity: Identity,
        locate: Callable[[], str],
        *,
        context: zmq.Context[zmq.Socket[bytes]] | None = None,
        transport: MakeTransport | None = None,
    ) -> None:
        self._handlers = Handlers(self._report)
        self._core = BusCore(identity)
        self._shell = BusShell(self._core, self._handlers, locate=locate, context=context, transport=transport)

    @classmethod
    async def connect(
        cls,
        settings: Settings,
        *,
        kind: PeerKind,
        address: str | None = None,
        session: str = "",
        authority: int | None = None,
        start_broker: bool = True,
        context: zmq.Context[zmq.Socket[bytes]] | None = None,
        prepare: Callable[[Self], None] | None = None,
    ) -> Self:
        """Connect to the broker of the settings' runtime directory.

        Args:
            settings: Where the broker is, and how one is started.
            kind: What this peer is.
            address: The address wanted; one is made without it.
            session: The session that this peer belongs to.
            authority: Bits of ``Authority`` that it wants at most; None is all that it can get.
            start_broker: Whether to start a broker where none is, now and whenever it is lost.
            context: The process's zmq context, where it has one; the caller ends it. Never one from before a fork.
            prepare: Registers handlers before anybody can reach this peer. One that is registered later may come too
                late for a caller who knows the address already: it gets ``not_served``.

        Raises:
            BrokerUnavailableError: None is there, or none could be started.
            IdentityInUseError: The address belongs to another live process.
        """
        locate = Locator(settings, start_broker=start_broker)
        return await cls.open(
            locate,
            kind=kind,
            address=address,
            session=session,
            authority=authority,
            context=context,
            prepare=prepare,
        )

    @classmethod
    async def open(
        cls,
        locate: Callable[[], str],
        *,
        kind: PeerKind,
        address: str | None = None,
        session: str = "",
        authority: int | None = None,
        context: zmq.Context[zmq.Socket[bytes]] | None = None,
        prepare: Callable[[Self], None] | None = None,
        transport: MakeTransport | None = None,
    ) -> Self:
        """Connect to the broker that ``locate`` names. It is called in a thread, again after every loss of a second.

        ``transport`` makes the connection instead of ZeroMQ, for tests.

        Raises:
            PisubError: As ``connect``, and whatever ``locate`` raises.
        """
        identity = Identity.of_this_process(kind, address, session, authority=authority)
        bus = cls(identity, locate, context=context, transport=transport)
        if prepare is not None:
            prepare(bus)
        bus._shell.start()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await bus._shell.ready
        except TimeoutError:
            await bus.close()
            silence = locate.silence() if isinstance(locate, Locator) else None
            sentence = f"The broker sent no Welcome within {CONNECT_TIMEOUT_S:g} s."
            raise silence or BrokerUnavailableError(sentence) from None
        except BaseException:
            await bus.close()
            raise
        return bus

    # Who this is. --------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """This client's address."""
        return self._core.identity.address

    @property
    def incarnation(self) -> int:
        """Which life of the address this is: the time of its making in nanoseconds."""
        return self._core.identity.incarnation

    @property
    def epoch(self) -> str:
        """Which life of the broker answered last."""
        return self._core.epoch

    @property
    def is_connected(self) -> bool:
        """Whether the broker knows this client now. A moment later it may not."""
        return self._core.phase is Phase.ONLINE

    @property
    def ignored(self) -> int:
        """Messages that nobody here could use: malformed, too late, or without a handler."""
        return self._shell.ignored

    # Sending. ------------------------------------------------------------------------------------------------

    async def call(
        self,
        to: str,
        message: Message,
        reply: type[T],
        *,
        timeout_s: float | None,
        scope: str = "",
        idempotent: bool = False,
        fence: Fence | None = None,
    ) -> T:
        """Ask a peer and wait for its one answer. Outlives the loss of the broker; a cancelled call is forgotten here.

        Args:
            to: An address, or ``role:<name>`` in ``scope``.
            message: The question.
            reply: What the answer is decoded as.
            timeout_s: None waits for as long as the callee lives.
            scope: Session in which a role is meant.
            idempotent: Whether the callee may get it a second time, when it is not known whether it got the first.
            fence: The role for which this client speaks.

        Raises:
            NotDeliveredError: It reached nobody; it is safe to repeat.
            OutcomeUnknownError: It may have been handled: the callee died, or the broker did before it said who has it.
            CallTimeoutError: No answer in time.
            ClientClosedError: The bus is or was closed.
            FrameTooLargeError: It does not fit, and is no message that may go by a file.
            PisubError: The callee's own error; one with a code unknown here is a ``RemoteError``.
        """
        large = 0
        try:
            body = encode(message)
        except FrameTooLargeError:
            body, large = self._shell.bodies.encode(message)
        ttl_ms = 0 if timeout_s is None else int(timeout_s * 1000) or 1
        flags = Flag.IDEMPOTENT | large if idempotent else large
        # By position: with keywords this is one of the dearer steps of a call.
        header = Header(Kind.CALL, Priority.NORMAL, self._core.next_id(), 0, scope, "", to, fence, ttl_ms, flags)
        try:
            return decode(await self._shell.ask(header, body, timeout_s=timeout_s, is_repeatable=idempotent), reply)
        finally:
            if large:
                self._shell.bodies.forget(body)

    def tell(
        self,
        to: str,
        message: Message,
        *,
        scope: str = "",
        priority: int = Priority.NORMAL,
        fence: Fence | None = None,
    ) -> None:
        """Send a message that wants no answer. Queues, never blocks, does not say whether it arrived.

        Raises:
            NotDeliveredError: 8 MiB wait for the broker already.
            ClientClosedError: The bus is closed.
        """
        self._send(message, kind=Kind.TELL, to=to, scope=scope, priority=priority, fence=fence)

    def publish(
        self, topic: str, message: Message, *, scope: str = "", to: str = "", priority: int = Priority.NORMAL
    ) -> None:
        """Send a message to whoever subscribed to the topic, and to ``to`` where it is set. As ``tell`` otherwise."""
        if not 1 <= len(topic) <= MAX_TOPIC_CHARS:
            raise InvalidArgumentError(f"A topic has 1 to {MAX_TOPIC_CHARS} characters.", field="topic")
        self._send(message, kind=Kind.PUBLISH, topic=topic, to=to, scope=scope, priority=priority)

    async def flush(self, timeout_s: float) -> bool:
        """Wait until libzmq has taken everything sent so far. False when it has not within the time."""
        return await self._shell.flush(timeout_s)

    # Handlers. -----------------------------------------------------------------------------------------------

    def serve(
        self,
        kind: type[M],
        handler: Callable[[M, Sender], Awaitable[Message] | Message],
        *,
        reply_topic: Callable[[M], str] | None = None,
    ) -> None:
        """Answer calls whose body is a ``kind``: with what ``handler`` returns, or what its awaitable does.

        An awaitable runs in a task of its own. A ``PisubError`` becomes the caller's error, with its code; another
        exception becomes ``internal_error`` there and is reported to the loop's exception handler here.
        A call that comes again gets the answer given before; the handler is not called for it.
        With ``reply_topic`` the answer is the caller's, and subscribers of that topic see it too.
        """
        self._handlers.calls.add(kind, handler)
        if reply_topic is not None:
            self._handlers.reply_topics[kind] = reply_topic

    def on_tell(self, kind: type[M], handler: Callable[[M, Sender], None]) -> None:
        """Have ``handler`` called for every told message that is a ``kind``, in order."""
        self._handlers.add_tell(kind, handler)

    def on_role(self, handler: Callable[[RoleGranted], None]) -> None:
        """Have ``handler`` called when a waiting claim is granted, and for each role held under a new number."""
        self._handlers.add_role(handler)

    def on_state(self, handler: Callable[[BusState], None]) -> Unsubscriber:
        """Have ``handler`` called on every change of the connection."""
        return self._handlers.add_state(handler)

    async def close(self) -> None:
        """Say goodbye and leave: all roles are released. Never hangs; open calls raise ``ClientClosedError``."""
        await self._shell.close(flush_s=_CLOSE_FLUSH_S)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Inside. -------------------------------------------------------------------------------------------------

    def _send(
        self,
        message: Message,
        *,
        kind: int,
        to: str = "",
        topic: str = "",
        scope: str = "",
        priority: int = Priority.NORMAL,
        fence: Fence | None = None,
    ) -> None:
        if self._shell.is_closing:
            raise ClientClosedError("The bus is closed.")
        body, flags = self._shell.bodies.encode(message)
        number = self._core.next_id()
        header = Header(kind, priority, number, 0, scope, topic, to, fence, 0, flags)
        self._shell.post(pack(header, body), header, body)

    def _report(self, what: str, error: Exception) -> None:
        self._shell.loop.call_exception_handler({"message": f"pisub: {what} failed", "exception": error})
