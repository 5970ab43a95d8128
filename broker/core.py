"""The broker's pure core: batches of frames, events and time in; sends and effects out.

Owns the entry points, and the first look at what does not go the short way (``express``). It must not know sockets,
clocks, processes or files, and nothing that comes from a peer makes it raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from pisub.errors import ProtocolError
from pisub.process import ProcessIdentity
from pisub.protocol import codec
from pisub.protocol.delivery import Header, Kind
from pisub.protocol.limits import DEADLINE_TICK_S
from pisub.protocol.session import Failure, GoneReason, Leaving

from .admission import Admission
from .control import Control
from .effects import Leave, Outcome, Send
from .events import Accepted, ConnectionLost, Event, LeaveRequested, MessageRefused, ProcessDied, SendFailed
from .express import Express
from .history import History
from .peers import Peer
from .routing import Routing
from .state import Limits, State
from .tracing import Tracing

#: A role that nobody holds or awaits is forgotten after this long.
_VACANT_ROLE_S = 3600.0
_SWEEP_S = 60.0


class Core:
    """A broker without a socket.

    Args:
        epoch: Which life of the broker this is.
        broker: Its process.
        software: What the Welcome says of it.
        now: Monotonic time of its start.
        limits: Bounds and times.
    """

    def __init__(
        self, *, epoch: str, broker: ProcessIdentity, software: str = "", now: float, limits: Limits | None = None
    ) -> None:
        self._state = State(epoch=epoch, broker=broker, software=software, limits=limits or Limits(), now=now)
        self._routing = Routing(self._state)
        self._admission = Admission(self._state, self._routing)
        self._control = Control(self._state, self._routing, self._leave)
        self._express = Express(self._state, self._routing, self._long_way)
        self._tracing = Tracing(self._state)
        #: What it was told lately. Kept for a crash file; nothing is decided by it.
        self.history = History()
        self._idle_since: float | None = now
        self._next_tick = now + DEADLINE_TICK_S
        self._next_sweep = now + _SWEEP_S

    @property
    def state(self) -> State:
        """Return the tables, for status and tests. Only the core changes them."""
        return self._state

    @property
    def bundling(self) -> set[bytes]:
        """Return the connections to which several messages may go in one, as it stands now."""
        return self._state.bundling

    # Frames ------------------------------------------------------------------------------------------------------

    def handle_batch(self, items: Sequence[tuple[bytes, bytes]], now: float) -> Outcome:
        """Handle frames in the order in which they were received.

        The same frames split into batches in another way give the same sends in the same order; but the callers of a
        role are told who has their calls at the end of the batch, all calls of one caller to one callee together.

        Args:
            items: Route and frame of each message.
            now: Monotonic time.
        """
        state = self._state
        self.history.received(items, now)
        senders = self._tracing.senders(items) if state.topics.tracers else None
        self._express.forward(items, now)
        if senders is not None:
            self._tracing.publish(items, senders)
        return state.take()

    def _long_way(self, route: bytes, frame: bytes, sender: Peer | None, now: float) -> None:
        """Handle one frame, whatever it is."""
        try:
            header, body = codec.unpack(frame)
        except ProtocolError as error:
            self._unreadable(route, sender, error)
            return
        kind = header.kind
        if self._state.is_leaving:
            self._state.send_stranger(route, Kind.LEAVING, Leaving(reason="leaving"))
        elif kind == Kind.HELLO:
            self.history.asked(route, frame, now)
            self._admission.hello(route, header, body, now)
        elif sender is None:
            self._stranger(route, header)
        elif kind == Kind.CONTROL:
            self.history.asked(route, frame, now)
            self._control.handle(sender, header, body, now)
        elif kind == Kind.GOODBYE:
            self._admission.goodbye(route, sender, now)
        else:
            self._routing.handle(sender, header, frame, now)

    def _stranger(self, route: bytes, header: Header) -> None:
        stranger = self._state.strangers.get(route)
        if stranger is not None and stranger.said_goodbye:
            self._state.counters["after_goodbye"] += 1
            return
        self._state.counters["refused_hello_first"] += 1
        failure = Failure(code="hello_first", message="Say Hello first: this broker does not know the connection.")
        self._state.send_stranger(route, Kind.FAIL, failure, correlation_id=header.message_id)

    def _unreadable(self, route: bytes, sender: Peer | None, error: ProtocolError) -> None:
        self._state.counters[f"refused_{error.code}"] += 1
        if sender is None:
            self._state.send_stranger(route, Kind.FAIL, Failure(code=error.code, message=error.message))
        else:
            self._state.fail(sender, 0, error.code, error.message)

    # Events ------------------------------------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> Outcome:
        """Handle something that is not a frame."""
        self.history.happened(event, now)
        match event:
            case Accepted():
                self._admission.accept(event, now)
            case ConnectionLost(route):
                self._admission.connection_lost(route, now)
            case ProcessDied(process):
                self._admission.process_died(process, now)
            case MessageRefused(route, code):
                self._unreadable(route, self._state.by_route.get(route), ProtocolError("One frame each.", code=code))
            case LeaveRequested(reason):
                self._leave(reason)
            case SendFailed():
                self._send_failed(event, now)
            case _:
                assert_never(event)
        return self._take()

    def _take(self) -> Outcome:
        if self._state.topics.tracers:
            self._tracing.publish((), ())
        return self._state.take()

    def _send_failed(self, failed: SendFailed, now: float) -> None:
        peer = self._state.by_route.get(failed.route)
        if failed.is_gone:
            self._admission.connection_lost(failed.route, now)
        if peer is None:
            self._state.counters["undeliverable"] += 1
        else:
            self._state.send_failed(peer, failed.stamp, failed.frame)

    def _leave(self, reason: str) -> None:
        state = self._state
        if state.is_leaving:
            return
        state.is_leaving = True
        for peer in list(state.by_route.values()):  # one that does not read is cut off by it
            state.send_own(peer, Kind.LEAVING, Leaving(reason=reason))
        state.effects.append(Leave(reason))

    # Peers that do not keep up -----------------------------------------------------------------------------------

    @property
    def has_suspended(self) -> bool:
        """Whether messages wait for a connected peer."""
        return bool(self._state.suspended)

    def suspended_routes(self) -> list[bytes]:
        """Return the connections for which messages wait; the first is the one that was tried longest ago."""
        return list(self._state.suspended)

    def next_queued(self, route: bytes, limit: int) -> list[Send]:
        """Return what to send next to a suspended peer; nothing when nothing waits: then it is suspended no more.

        A peer for which only droppable messages came has nothing waiting: the next message shows whether it reads.
        """
        self.history.retried(route, limit)
        peer = self._state.suspended.get(route)
        if peer is None:
            return []
        waiting = peer.mailbox.peek(limit)
        if not waiting:
            self._state.resume(peer)
        return [(route, stamp, frame) for stamp, frame in waiting]

    def handed_over(self, route: bytes, count: int) -> None:
        """The first ``count`` of what ``next_queued`` returned were sent."""
        self.history.handed_over(route, count)
        peer = self._state.suspended.get(route)
        if peer is not None:
            self._state.handed_over(peer, count)

    def sends_failed(self, failed: list[SendFailed], now: float) -> Outcome:
        """Queue what could not be sent, in order."""
        self.history.sends_failed(failed, now)
        for each in failed:
            self._send_failed(each, now)
        return self._take()

    # Time --------------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> Outcome:
        """Do what is due. Deadlines are kept to within ``DEADLINE_TICK_S``."""
        if now < self._next_tick:
            return self._take()
        self.history.ticked(now)
        self._next_tick = now + DEADLINE_TICK_S
        if not self._state.is_settled and now >= self._state.settled_at:
            self._settle(now)
        self._routing.expire(now)
        self._admission.expire(now)
        self._control.rates.note(now)
        if now >= self._next_sweep:
            self._next_sweep = now + _SWEEP_S
            self._state.roles.forget_vacant(now - _VACANT_ROLE_S)
        self._mind_idleness(now)
        return self._take()

    def next_deadline(self) -> float:
        """Return when ``tick`` is next due, in monotonic time."""
        return self._next_tick

    def _settle(self, now: float) -> None:
        """Whoever was connected to the last broker is here by now: what is missing is missing."""
        state = self._state
        state.is_settled = True
        for key in state.roles.names():
            state.grant_waiting(key)
        for address in [each for each in state.watchers if each not in state.peers]:
            state.tell_watchers(address, GoneReason.UNKNOWN)
        self._routing.unpark_all(now)

    def _mind_idleness(self, now: float) -> None:
        if self._state.peers or self._state.strangers:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif now >= self._idle_since + self._state.limits.idle_exit_s:
            self._leave("idle")
