"""The bus's core on an event loop: socket, timer, and the thread that looks for a broker.

Owns every side effect of the core.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine, Sequence
from math import inf
from typing import Any, Final, assert_never

import zmq

from pisub.client.bus_bodies import Bodies
from pisub.client.bus_callee import Callee
from pisub.client.bus_calls import PendingCall
from pisub.client.bus_core import BusCore, Phase
from pisub.client.bus_events import (
    Announce,
    Dial,
    Effect,
    End,
    FindBroker,
    Gone,
    Granted,
    HangUp,
    Reclaim,
    Rejected,
    Skip,
)
from pisub.client.bus_handlers import Handlers
from pisub.client.bus_outbox import Outgoing
from pisub.client.bus_receive import Receiver
from pisub.client.bus_search import BrokerSearch
from pisub.client.bus_types import BusState
from pisub.errors import BrokerUnavailableError, ClientClosedError, NotDeliveredError, PisubError, RefusedError
from pisub.paths import NO_TCP
from pisub.protocol.codec import pack
from pisub.protocol.delivery import Header, Kind, Priority
from pisub.protocol.session import Claim
from pisub.transport.base import Transport
from pisub.transport.dealer import Dealer, new_context
from pisub.transport.monitor import Link

#: Frames that are collected before they are sent together, where a turn of the loop brings more than one.
_BURST: Final = 32
#: Called with ``on_message``, ``on_room`` and ``on_link``.
MakeTransport = Callable[..., Transport]
#: How long a close may wait for libzmq to write what it accepted: well under 1 ms where the broker reads.
_LINGER_MS: Final = 100


class BusShell:
    """One connection, kept alive. All methods are called on the loop's thread.

    Args:
        core: The state.
        handlers: Told of roles, ends and the connection's state.
        locate: Finds or starts a broker and returns its address; blocks, so it is run in a thread.
        context: The process's context; without one the shell makes its own, and ends it.
        transport: Makes the connection instead of ZeroMQ, which is not used then.
    """

    def __init__(
        self,
        core: BusCore,
        handlers: Handlers,
        *,
        locate: Callable[[], str],
        context: zmq.Context[zmq.Socket[bytes]] | None = None,
        transport: MakeTransport | None = None,
    ) -> None:
        self.core = core
        self.loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self.loop.create_future()
        self.is_closing = False
        self._handlers = handlers
        self._search = BrokerSearch(self.loop, locate, self._on_search_ended)
        callee = Callee(core, handlers, post=self.post, spawn=self.spawn, report=handlers.report)
        self._receiver = Receiver(core, callee, _answer)
        self.bodies = Bodies()
        callee.encode = self.bodies.encode
        self._receiver.resolve = self.bodies.resolve
        self._receive = self._receiver.receive
        self._time = self.loop.time
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._flushed: list[asyncio.Future[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._own_context = new_context() if context is None and transport is None else None
        if transport is None:
            transport = functools.partial(Dealer, context or self._own_context or new_context(), self.loop)
        self._dealer = transport(on_message=self._on_message, on_room=self._on_room, on_link=self._on_link)

    @property
    def ignored(self) -> int:
        """Messages that nobody here could use: malformed, late, or of a kind without a handler."""
        return self._receiver.ignored

    # What the bus uses. --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Look for the broker."""
        self.run(self.core.start())

    async def ask(
        self,
        header: Header,
        body: bytes,
        *,
        timeout_s: float | None,
        is_repeatable: bool,
        claim: Claim | None = None,
    ) -> bytes:
        """Send a CALL or CONTROL and wait for the body of its reply. A cancelled one is forgotten here.

        Raises:
            PisubError: What became of it instead.
        """
        if self.is_closing:
            raise ClientClosedError("The bus is closed.")
        frame = pack(header, body)
        waiter: asyncio.Future[bytes] = self.loop.create_future()
        deadline = None if timeout_s is None else self.loop.time() + timeout_s
        call = PendingCall(header, body, waiter, deadline, is_repeatable=is_repeatable)
        if claim is not None:
            call.claim = claim
        calls = self.core.calls
        calls.open(call)
        try:
            self.post(frame, header, body, call)
            if deadline is not None and deadline < self._timer_at:
                self._arm()
            return await waiter
        except (asyncio.CancelledError, NotDeliveredError):
            calls.close(call.header.message_id)  # it may have another by now
            raise

    def post(self, frame: bytes, header: Header, body: bytes = b"", call: PendingCall | None = None) -> None:
        """Send a frame now, or queue it behind those that wait.

        Raises:
            NotDeliveredError: The outbox is full.
        """
        dealer, core = self._dealer, self.core
        if dealer.is_quiet and core.hand_over(frame, call, dealer.send):
            return
        core.outbox.push(Outgoing(frame, header, body, call))
        if len(core.outbox) == _BURST:
            self._on_room()

    def look(self) -> None:
        """Send soon what the core queued by itself."""
        if not self.is_closing:
            self._dealer.look()

    async def flush(self, timeout_s: float) -> bool:
        """Wait until libzmq has everything; False when it does not within the time."""
        if not self.core.outbox:
            return True
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._flushed.append(waiter)
        self._dealer.look()
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            return False
        finally:
            self._flushed.remove(waiter)
        return True

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work beside; it ends with the bus."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self, *, flush_s: float) -> None:
        """Say goodbye, end calls and tasks, close the socket. Takes at most ``3 * flush_s`` and the linger."""
        if self.is_closing:
            return
        self.is_closing = True
        try:
            if self.core.phase is Phase.ONLINE:
                header = Header(kind=Kind.GOODBYE, priority=Priority.CONTROL, message_id=self.core.next_id())
                with contextlib.suppress(NotDeliveredError):
                    self.post(pack(header), header)
                    await self.flush(flush_s)
            tasks = [task for task in self._tasks if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=flush_s)
            await self._search.stop(flush_s)
        finally:
            self.run(self.core.close())
            if self._timer is not None:
                self._timer.cancel()
            if not self.ready.done():
                self.ready.cancel()
            self._dealer.close(linger_ms=_LINGER_MS)
            self.bodies.close()
            if self._own_context is not None:
                self._own_context.term()

    def run(self, effects: Sequence[Effect]) -> None:
        """Carry effects out, in order."""
        if effects:
            self._perform(effects)
            self._arm()

    def _perform(self, effects: Sequence[Effect]) -> None:  # noqa: C901, PLR0912  # one case per effect
        for effect in effects:
            match effect:
                case End(call, error):
                    if call.waiter is not None and not call.waiter.done():
                        call.waiter.set_exception(error)
                case FindBroker():
                    self._search.begin()
                case Dial(address):
                    self._dial(address)
                case HangUp():
                    self._dealer.hang_up()
                case Announce(state):
                    if state is BusState.CONNECTED and not self.ready.done():
                        self.ready.set_result(None)
                    self._handlers.state(state)
                case Granted(role):
                    self._handlers.granted(role)
                case Gone(message):
                    self._handlers.terminated(message)
                case Reclaim(claim):
                    self.core.reclaim(claim)
                case Rejected(error):
                    if not self.ready.done():
                        self.ready.set_exception(error)
                case Skip():
                    self._dealer.realign()
                case _:
                    assert_never(effect)

    # The socket. ---------------------------------------------------------------------------------------------

    def _dial(self, address: str) -> None:
        if address.startswith("tcp:"):
            self.run(self.core.not_found(RefusedError(NO_TCP), self.loop.time()))
            return
        self.bodies.follow(address)
        try:
            self._dealer.dial(address)
        except zmq.ZMQError as error:
            reason = BrokerUnavailableError(f"{address!r} is not an address that can be connected to: {error}.")
            self.run(self.core.not_found(reason, self.loop.time()))

    def _on_link(self, link: Link) -> None:
        now = self.loop.time()
        self.run(self.core.link_up(now) if link is Link.UP else self.core.link_down(now))
        self._dealer.look()

    def _on_room(self) -> bool:
        """Send what waits; tell whether some still does."""
        core = self.core
        is_empty = core.drain(self._dealer.send)
        if is_empty and core.phase is Phase.ONLINE:
            for waiter in self._flushed:
                if not waiter.done():
                    waiter.set_result(None)
        self._arm()
        return not is_empty

    def _on_message(self, stamp_frame: bytes, frame: bytes) -> None:
        effects = self._receive(stamp_frame, frame, self._time())
        if effects:
            self._perform(effects)  # the timer is set when the turn ends, by _on_room

    # Beside. -------------------------------------------------------------------------------------------------

    def _on_search_ended(self, outcome: str | PisubError) -> None:
        now = self.loop.time()
        if isinstance(outcome, str):
            self.run(self.core.found(outcome, now))
        else:
            self.run(self.core.not_found(outcome, now))

    def _arm(self) -> None:
        """Set the one timer to the core's next deadline; a timer that fires too early costs nothing but itself."""
        self.core.arrived.tell_time(self.loop.time())
        at = self.core.next_deadline()
        if at is None or at >= self._timer_at or self.core.phase is Phase.CLOSED:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self.loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_at = None, inf
        now = self.loop.time()
        self.run(self.core.tick(now))
        self._dealer.look()
        self._arm()


def _answer(call: PendingCall, body: bytes) -> None:
    waiter = call.waiter
    if not waiter.done():  # its task was cancelled, and has not run since
        waiter.set_result(body)
