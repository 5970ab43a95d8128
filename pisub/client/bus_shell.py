"""The bus's core on an event loop: socket, timer, and the thread that looks for a broker.

Owns every side effect of the core.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from math import inf
from typing import Any, Final, assert_never

import zmq

from pisub.client.bus_callee import Callee
from pisub.client.bus_calls import PendingCall
from pisub.client.bus_core import BusCore, Phase
from pisub.client.bus_events import Announce, Dial, Effect, End, FindBroker, Granted, HangUp, Reclaim, Rejected
from pisub.client.bus_handlers import Handlers
from pisub.client.bus_outbox import Outgoing
from pisub.client.bus_search import BrokerSearch
from pisub.client.bus_types import BusState, Sender, error_of
from pisub.errors import (
    BrokerUnavailableError,
    ClientClosedError,
    NotDeliveredError,
    PisubError,
    ProtocolError,
)
from pisub.protocol.codec import decode, encode, pack, unpack, unpack_stamp
from pisub.protocol.delivery import Header, Kind, Priority, Stamp
from pisub.protocol.session import Arrived, Claim, Claimed, Failure, RoleGranted, Terminated, Welcome
from pisub.transport.dealer import Dealer, new_context
from pisub.transport.monitor import Link

#: Different stamps that are remembered decoded. A sender's stamp is the same bytes for every message.
_MAX_STAMPS: Final = 1_024
#: Frames that are collected before they are sent together, where a turn of the loop brings more than one.
_BURST: Final = 32
#: How long a close may wait for libzmq to write what it accepted: well under 1 ms where the broker reads.
_LINGER_MS: Final = 100


class BusShell:
    """One connection, kept alive. All methods are called on the loop's thread.

    Args:
        core: The state.
        handlers: Told of roles, ends and the connection's state.
        locate: Finds or starts a broker and returns its address; blocks, so it is run in a thread.
        context: The process's context; without one the shell makes its own, and ends it.
    """

    def __init__(
        self,
        core: BusCore,
        handlers: Handlers,
        *,
        locate: Callable[[], str],
        context: zmq.Context[zmq.Socket[bytes]] | None = None,
    ) -> None:
        self.core = core
        self.loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self.loop.create_future()
        self.is_closing = False
        #: Messages that nobody here could use: malformed, late, or of a kind without a handler.
        self.ignored = 0
        self._handlers = handlers
        self._search = BrokerSearch(self.loop, locate, self._on_search_ended)
        self._callee = Callee(
            core, handlers, post=self.post, spawn=self.spawn, clock=self.loop.time, report=handlers.report
        )
        self._stamps: dict[bytes, tuple[Stamp, Sender, str]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._flushed: list[asyncio.Future[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._own_context = new_context() if context is None else None
        self._dealer = Dealer(
            context or self._own_context or new_context(),
            self.loop,
            on_message=self._on_message,
            on_room=self._on_room,
            on_link=self._on_link,
        )

    # What the bus uses. --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Look for the broker."""
        self.run(self.core.start())

    async def ask(self, header: Header, body: bytes, *, timeout_s: float | None, is_repeatable: bool) -> memoryview:
        """Send a CALL or CONTROL and wait for the body of its reply. A cancelled one is forgotten here.

        Raises:
            PisubError: What became of it instead.
        """
        if self.is_closing:
            raise ClientClosedError("The bus is closed.")
        frame = pack(header, body)
        waiter: asyncio.Future[memoryview] = self.loop.create_future()
        deadline = None if timeout_s is None else self.loop.time() + timeout_s
        call = PendingCall(header, body, waiter, deadline, is_repeatable=is_repeatable)
        calls = self.core.calls
        calls.open(call)
        try:
            self.post(frame, header, body, call)
            if deadline is not None and deadline < self._timer_at:
                self._arm()
            return await waiter
        except (asyncio.CancelledError, NotDeliveredError):
            calls.close(header.message_id)
            raise

    def post(self, frame: bytes, header: Header, body: bytes = b"", call: PendingCall | None = None) -> None:
        """Send a frame now, or queue it behind those that wait.

        Raises:
            NotDeliveredError: The outbox is full.
        """
        core = self.core
        outbox = core.outbox
        if self._dealer.is_quiet and core.phase is Phase.ONLINE and not outbox and self._dealer.send(frame):
            if call is not None:
                call.is_sent = True
            return
        outbox.push(Outgoing(frame, header, body, call))
        if len(outbox) == _BURST:
            self._on_room()

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
        """Say goodbye, end calls and tasks, close the socket. Takes at most ``2 * flush_s`` and the linger."""
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
        finally:
            self.run(self.core.close())
            if self._timer is not None:
                self._timer.cancel()
            if not self.ready.done():
                self.ready.cancel()
            self._dealer.close(linger_ms=_LINGER_MS)
            if self._own_context is not None:
                self._own_context.term()

    def run(self, effects: list[Effect]) -> None:
        """Carry effects out, in order."""
        for effect in effects:
            match effect:
                case FindBroker():
                    self._search.begin()
                case Dial(address):
                    self._dial(address)
                case HangUp():
                    self._dealer.hang_up()
                case End(call, error):
                    if not call.waiter.done():
                        call.waiter.set_exception(error)
                case Announce(state):
                    if state is BusState.CONNECTED and not self.ready.done():
                        self.ready.set_result(None)
                    self._handlers.state(state)
                case Granted(role):
                    self._handlers.granted(role)
                case Reclaim(claim):
                    self.spawn(self._reclaim(claim))
                case Rejected(error):
                    if not self.ready.done():
                        self.ready.set_exception(error)
                case _:
                    assert_never(effect)
        if effects:
            self._arm()

    # The socket. ---------------------------------------------------------------------------------------------

    def _dial(self, address: str) -> None:
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
        core, send = self.core, self._dealer.send
        if core.is_hello_due:
            if not send(core.hello()):
                return True
            core.is_hello_due = False
        if core.phase is Phase.ONLINE:
            if not core.outbox.drain(send):
                return True
            for waiter in self._flushed:
                if not waiter.done():
                    waiter.set_result(None)
        self._arm()
        return False

    def _on_message(self, stamp_frame: bytes, frame: bytes) -> None:
        try:
            stamp, sender, bound_name = self._stamps.get(stamp_frame) or self._learn(stamp_frame)
            header, body = unpack(frame)
        except ProtocolError:
            self.ignored += 1
            self._dealer.realign()
            return
        if stamp.dropped:
            self.run([Announce(BusState.RESYNC)])
        kind = header.kind
        if kind == Kind.REPLY:
            self._on_reply(bound_name, header.correlation_id, body)
        elif kind in _FROM_PEERS and sender.address:
            self.ignored += not self._callee.receive(sender, header, body, stamp.dropped)
        elif kind == Kind.FAIL:
            self._on_fail(bound_name, header.correlation_id, body)
        elif not sender.address:
            self._on_broker(header, body)
        else:
            self.ignored += 1

    def _learn(self, stamp_frame: bytes) -> tuple[Stamp, Sender, str]:
        """Decode a stamp that was not seen yet; the last part is who a call is bound to, '' for the broker."""
        stamp = unpack_stamp(stamp_frame)
        address, incarnation = stamp.sender, stamp.incarnation
        if len(self._stamps) >= _MAX_STAMPS:
            self._stamps.clear()
        sender = Sender(address, incarnation, stamp.authority)
        known = self._stamps[stamp_frame] = (stamp, sender, f"{address}@{incarnation}" if address else "")
        if address:
            self.core.calls.note_life(address, incarnation)
        return known

    def _on_reply(self, callee: str, message_id: int, body: memoryview) -> None:
        call = self.core.calls.close(message_id)
        if call is None:
            self.ignored += 1
            return
        if not call.waiter.done():
            call.waiter.set_result(body)
        if callee and self.core.arrived.add(callee, message_id):
            self._acknowledge()

    def _on_fail(self, callee: str, message_id: int, body: memoryview) -> None:
        try:
            failure = decode(body, Failure)
        except ProtocolError as error:
            failure = Failure(code=error.code, message=f"A failure that cannot be read: {error.message}")
        now = self.loop.time()
        if not callee and failure.code == "hello_first":
            self.run(self.core.stranger(now))
            self._dealer.look()
            return
        if not callee and message_id == 0:
            self.run(self.core.rejected(error_of(failure), now))
            return
        effects = self.core.failed(message_id, error_of(failure))
        self.run(effects)
        if not effects:
            self.ignored += 1
            return
        if callee and self.core.arrived.add(callee, message_id):
            self._acknowledge()

    def _acknowledge(self) -> None:
        for callee, ids in self.core.arrived.take_all().items():
            header = Header(kind=Kind.DONE, priority=Priority.DROPPABLE, message_id=self.core.next_id(), to=callee)
            body = encode(Arrived(message_ids=tuple(ids)))
            self.post(pack(header, body), header, body)

    def _on_broker(self, header: Header, body: memoryview) -> None:
        core, now = self.core, self.loop.time()
        try:
            if header.kind == Kind.ROUTED:
                core.calls.bind(header.correlation_id, header.to)
            elif header.kind == Kind.WELCOME:
                effects = core.welcomed(decode(body, Welcome), now)
                self.run(effects)
                if effects:
                    for request in core.unstated():
                        self.spawn(self._state_late(encode(request)))
                    self._dealer.look()
            elif header.kind == Kind.LEAVING:
                self.run(core.leaving())
            elif header.kind == Kind.TELL:
                self._on_spontaneous(decode(body, _SPONTANEOUS))
            else:
                self.ignored += 1
        except ProtocolError:
            self.ignored += 1

    def _on_spontaneous(self, message: Terminated | RoleGranted) -> None:
        if isinstance(message, RoleGranted):
            self.run(self.core.note_granted(message))
        else:
            self.core.watches.pop(message.address, None)
            if not self._handlers.terminated(message):
                self.ignored += 1

    # Beside. -------------------------------------------------------------------------------------------------

    async def _reclaim(self, claim: Claim) -> None:
        with contextlib.suppress(PisubError):  # taken by another: this client waits for no answer
            answer = decode(await self._request(encode(claim)), Claimed)
            if self.core.note_claimed(answer):
                granted = RoleGranted(role=claim.role, scope=claim.scope, generation=answer.generation)
                self.run([Granted(granted)])

    async def _state_late(self, body: bytes) -> None:
        with contextlib.suppress(PisubError):  # the next Hello states it again
            await self._request(body)

    async def _request(self, body: bytes) -> memoryview:
        header = Header(kind=Kind.CONTROL, priority=Priority.CONTROL, message_id=self.core.next_id())
        return await self.ask(header, body, timeout_s=None, is_repeatable=True)

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
        due_at = self.core.arrived.due_at
        if due_at is not None and due_at <= now:
            self._acknowledge()
        self._arm()


_FROM_PEERS: Final = frozenset((Kind.CALL, Kind.TELL, Kind.PUBLISH, Kind.DONE))
_SPONTANEOUS: Final[Any] = Terminated | RoleGranted
