"""The broker without sockets: the same core, for tests in one process. Who connects is told what a peer would be.

Owns the routes. It reads no clock: time is the caller's, as for the core.
"""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Callable

from pisub.process import ProcessIdentity, own_identity
from pisub.protocol.bundle import frames_of

from .core import Core
from .effects import Disconnect, Outcome
from .events import Accepted, ConnectionLost, Event, ProcessDied
from .state import Limits

#: Called with the stamp and the frame of each message.
Deliver = Callable[[bytes, bytes], None]
#: A broker that nobody uses for so long would leave; one in memory stays.
_NEVER_S = 1e12


class _Line:
    """One connection."""

    def __init__(self, deliver: Deliver, on_cut: Callable[[], None], process: ProcessIdentity) -> None:
        self.deliver = deliver
        self.on_cut = on_cut
        self.process = process


class MemoryBroker:
    """A broker whose peers are in this process.

    Args:
        now: Monotonic seconds.
    """

    def __init__(self, now: float) -> None:
        self._numbers = itertools.count(1)
        self._lines: dict[bytes, _Line] = {}
        self._core = self._fresh_core(now)

    @property
    def epoch(self) -> str:
        """Which life of the broker this is."""
        return self._core.state.epoch

    def process(self) -> ProcessIdentity:
        """Return the identity of one more process: of this one's pid, since that is what a peer says of itself."""
        return ProcessIdentity(pid=os.getpid(), start_ticks=next(self._numbers), boot_id="memory")

    def connect(self, deliver: Deliver, on_cut: Callable[[], None], process: ProcessIdentity, now: float) -> bytes:
        """Open a connection of a process; return its route.

        Args:
            deliver: Called with each message for it.
            on_cut: Called when the broker breaks it.
            process: Whose it is.
            now: Monotonic seconds.
        """
        route = b"\0" + next(self._numbers).to_bytes(4, "big")
        self._lines[route] = _Line(deliver, on_cut, process)
        self._handle(Accepted(route, is_same_user=True, pid=process.pid, process=process), now)
        return route

    def receive(self, route: bytes, message: bytes, now: float) -> None:
        """Take a frame, or a bundle of them, from a connection; one that is gone says nothing any more."""
        if route in self._lines:
            self._apply(self._core.handle_batch([(route, frame) for frame in frames_of(message)], now))

    def disconnect(self, route: bytes, now: float) -> None:
        """A connection broke. Its process may come back."""
        if self._lines.pop(route, None) is not None:
            self._handle(ConnectionLost(route), now)

    def kill(self, process: ProcessIdentity, now: float) -> None:
        """A process is gone, with all its connections."""
        for route in [route for route, line in self._lines.items() if line.process == process]:
            del self._lines[route]
        self._handle(ProcessDied(process), now)

    def restart(self, now: float) -> None:
        """Lose everything but the time: all connections break, and the next Hello meets another life of the broker."""
        lines, self._lines = self._lines, {}
        self._core = self._fresh_core(now)
        for line in lines.values():
            line.on_cut()

    def next_deadline(self) -> float:
        """Return when to call ``tick`` next."""
        return self._core.next_deadline()

    def tick(self, now: float) -> None:
        """Let time pass."""
        self._apply(self._core.tick(now))

    def _fresh_core(self, now: float) -> Core:
        limits = Limits(settle_s=0.0, idle_exit_s=_NEVER_S)
        epoch = f"memory-{secrets.token_hex(8)}"
        return Core(epoch=epoch, broker=own_identity(), software="memory", now=now, limits=limits)

    def _handle(self, event: Event, now: float) -> None:
        self._apply(self._core.handle(event, now))

    def _apply(self, outcome: Outcome) -> None:
        for route, stamp, frame in outcome.sends:
            line = self._lines.get(route)
            if line is not None:
                line.deliver(stamp, frame)
        for effect in outcome.effects:
            if isinstance(effect, Disconnect) and effect.route in self._lines:
                self._lines.pop(effect.route).on_cut()
