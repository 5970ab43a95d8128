"""The broker's loop: drains the socket, feeds the core, sends what it says.

Owns the order in which things are looked at. It has no rule about messages or peers of its own.
"""

from __future__ import annotations

import os
from typing import assert_never

from pisub.clock import Clock
from pisub.process import ProcessIdentity

from .core import Core
from .effects import Disconnect, Effect, Forget, Leave, Outcome, Suspended, UnwatchProcess, WatchProcess
from .events import Accepted, ConnectionLost, Event, LeaveRequested, MessageRefused, ProcessDied, SendFailed
from .liveness import ProcessWatch, ancestors_of, is_full, watchable
from .retries import Retries
from .singleton import Singleton
from .wire import Connection, Received, Wire

#: The directory is compared with our lock and socket this often. inotify would say it sooner, and needs ctypes.
DISPLACED_CHECK_S = 2.0
#: What a dead process sent before it died is waited for at most this long: a fork of it may hold its socket open.
LAST_WORDS_S = 0.05
#: Descriptors that are no connection and no pidfd.
_BASE_DESCRIPTORS = 32
#: Messages that one suspended peer gets in one round, so that a fast reader does not hold up the others.
_RETRY_BATCH = 64
_ROUTING_ID_BYTES = 5
#: Batches that are still answered when leaving.
_LAST_BATCHES = 64


class Shell:
    """Runs a core on a socket until it leaves."""

    def __init__(
        self,
        core: Core,
        wire: Wire,
        watch: ProcessWatch,
        singleton: Singleton,
        clock: Clock,
        *,
        descriptor_limit: int,
    ) -> None:
        self._core = core
        self._wire = wire
        self._watch = watch
        self._singleton = singleton
        self._clock = clock
        self._descriptor_limit = descriptor_limit
        self._connections: dict[bytes, Connection] = {}
        self._by_descriptor: dict[int, bytes] = {}
        self._processes: dict[bytes, ProcessIdentity] = {}
        self._broken: list[bytes] = []
        self._dying: dict[ProcessIdentity, float] = {}
        self._leaving: str | None = None
        self._retries = Retries()
        self._check_at = clock.monotonic() + DISPLACED_CHECK_S
        self._look_at = 0.0

    def request_leave(self, reason: str) -> None:
        """Leave at the next turn. Safe in a signal handler."""
        self._leaving = self._leaving or reason

    def run(self) -> str:
        """Serve until the core leaves.

        Returns:
            Why it left.
        """
        while True:
            now = self._turn()
            if self._leaving is not None:
                self._handle(LeaveRequested(self._leaving), now)
                self._last_turns()
                return self._leaving
            if self._wire.is_drained and not self._broken and self._wait(now):
                self._note_broken()

    def _turn(self) -> float:
        items, odd, connection = self._wire.receive(self._connections)
        now = self._clock.monotonic()
        if items:
            self._apply(self._core.handle_batch(items, now), now)
        if odd is not None:
            self._receive_odd(odd, connection, now)
        for process in self._watch.gone():
            self._dying[process] = now + LAST_WORDS_S
        if self._broken and self._wire.is_drained:
            self._handle_broken(now)
        if self._dying:
            self._handle_deaths(now)
        if now >= self._core.next_deadline():
            self._apply(self._core.tick(now), now)
        if self._retries:
            self._retry(now, is_woken=not items and odd is None)
        if now >= self._check_at:
            self._check_at = now + DISPLACED_CHECK_S
            if self._singleton.is_displaced():
                self.request_leave("moved")
        self._look_without_pidfd(now)
        return now

    def _handle(self, event: Event, now: float) -> None:
        self._apply(self._core.handle(event, now), now)

    def _wait(self, now: float) -> bool:
        return self._wire.wait(self._timeout_ms(now), self._watch.fileno)

    def _timeout_ms(self, now: float) -> int:
        due = min(self._core.next_deadline(), self._check_at)
        if self._retries:
            due = min(due, self._retries.next_due)
        if self._dying:
            due = min(due, *self._dying.values())
        if self._watch.look_every_s is not None:
            due = min(due, self._look_at)
        return 0 if due <= now else int((due - now) * 1000) + 1

    # Connections and processes -----------------------------------------------------------------------------------

    def _receive_odd(self, odd: Received, connection: Connection | None, now: float) -> None:
        if connection is not None:
            if len(odd.route) != _ROUTING_ID_BYTES or odd.route[0] != 0:
                # A routing id of the client's choice could be another client's next time.
                self._handle(MessageRefused(odd.route, "protocol_error"), now)
                return
            self._note_broken()  # before the descriptor is taken for this connection's: it may have been another's
            self._accept(odd.route, connection, now)
        if odd.frames:
            self._apply(self._core.handle_batch([(odd.route, frame) for frame in odd.frames], now), now)
        else:
            self._handle(MessageRefused(odd.route, "protocol_error"), now)

    def _accept(self, route: bytes, connection: Connection, now: float) -> None:
        self._connections[route] = connection
        self._by_descriptor[connection.descriptor] = route
        credentials = connection.credentials
        pid = 0 if credentials is None else credentials.pid
        process = watchable(pid) if pid else None
        if process is not None:
            self._processes[route] = process
        used = len(self._connections) + len(self._watch) + _BASE_DESCRIPTORS
        accepted = Accepted(
            route=route,
            is_same_user=credentials is not None and credentials.uid == os.geteuid(),
            pid=pid,
            process=process,
            ancestors=ancestors_of(pid) if pid else (),
            is_full=is_full(used, self._descriptor_limit),
        )
        self._handle(accepted, now)

    def _note_broken(self) -> None:
        for descriptor in self._wire.disconnected():
            route = self._by_descriptor.pop(descriptor, None)
            if route is not None:
                self._broken.append(route)

    def _handle_broken(self, now: float) -> None:
        """Handle losses noted before the socket was drained: so a peer's last words come before its end."""
        broken, self._broken = self._broken, []
        for route in broken:
            self._handle(ConnectionLost(route), now)

    def _handle_deaths(self, now: float) -> None:
        connected = set(self._processes.values())
        for process, latest in list(self._dying.items()):
            if process not in connected or now >= latest:
                del self._dying[process]
                self._handle(ProcessDied(process), now)

    def _look_without_pidfd(self, now: float) -> None:
        every = self._watch.look_every_s
        if every is not None and now >= self._look_at:
            self._look_at = now + every
            for process in self._watch.look():
                self._dying[process] = now + LAST_WORDS_S

    # Sending -----------------------------------------------------------------------------------------------------

    def _apply(self, outcome: Outcome, now: float) -> None:
        if outcome.sends:
            failed = self._wire.send_all(outcome.sends, self._core.bundling)
            if failed:
                self._handle_failed(failed, now)
        for effect in outcome.effects:
            self._perform(effect)

    def _handle_failed(self, failed: list[SendFailed], now: float) -> None:
        self._apply(self._core.sends_failed(failed, now), now)

    def _retry(self, now: float, *, is_woken: bool) -> None:
        for route in self._retries.due(now, is_woken=is_woken):
            self._send_queued(route, now)

    def _send_queued(self, route: bytes, now: float) -> None:
        """Send up to ``_RETRY_BATCH`` of a peer's queued messages."""
        sends = self._core.next_queued(route, _RETRY_BATCH)
        if not sends:
            self._retries.forget(route)
            return
        count, is_gone = self._wire.send_some(sends, self._core.bundling)
        if count:
            self._retries.took(route, now, has_room=count == len(sends))
        else:
            self._retries.refused(route, now)
        self._core.handed_over(route, count)
        if is_gone:
            self._handle(ConnectionLost(route), now)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case WatchProcess(process):
                self._watch.watch(process)
            case UnwatchProcess(process):
                self._watch.unwatch(process)
            case Disconnect(route):
                connection = self._connections.get(route)
                if connection is not None:
                    self._wire.cut(connection)
            case Forget(route):
                self._forget(route)
            case Suspended(route):
                self._retries.add(route, self._clock.monotonic())
            case Leave(reason):
                self.request_leave(reason)
            case _:
                assert_never(effect)

    def _forget(self, route: bytes) -> None:
        self._retries.forget(route)
        self._processes.pop(route, None)
        connection = self._connections.pop(route, None)
        if connection is not None and self._by_descriptor.get(connection.descriptor) == route:
            del self._by_descriptor[connection.descriptor]

    def _last_turns(self) -> None:
        """Say that we leave to everybody who still sent something."""
        self._singleton.withdraw()
        self._wire.unbind()
        for _ in range(_LAST_BATCHES):
            self._turn()
            if self._wire.is_drained:
                break
