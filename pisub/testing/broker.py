"""A broker in memory: programs that talk over the bus, tested in one process, without sockets and without waiting.

The broker's own core decides everything, so names, roles, calls, topics and deaths are what they are with processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import tempfile
from collections import deque
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

from pisub.client.bus import Bus
from pisub.process import ProcessIdentity
from pisub.protocol.session import PeerKind
from pisub.transport.monitor import Link


class MemoryBroker:
    """A broker, and the processes that are connected to it. Made by ``broker``."""

    def __init__(self, directory: Path) -> None:
        self._loop = asyncio.get_running_loop()
        self._endpoint = f"ipc://{directory / 'memory.sock'}"
        self._core: Any = _program().MemoryBroker(self._loop.time())
        self._timer: asyncio.TimerHandle | None = None
        self._processes: dict[Bus, ProcessIdentity] = {}
        self._lines: dict[Bus, _Line] = {}

    async def connect(
        self,
        *,
        kind: PeerKind = PeerKind.CLIENT,
        address: str | None = None,
        session: str = "",
        beside: Bus | None = None,
        prepare: Callable[[Bus], None] | None = None,
    ) -> Bus:
        """Connect as a process of its own. Close the bus as any other; arguments and errors as for ``Bus.connect``.

        Args:
            kind: What this peer is.
            address: The address wanted; one is made without it.
            session: The session that it belongs to.
            beside: A bus of the process that it is in; None is another process.
            prepare: Registers handlers before anybody can reach it.
        """
        process = self._core.process() if beside is None else self._processes[beside]
        line: list[_Line] = []

        def transport(**callbacks: Any) -> _Line:
            line.append(_Line(self._core, process, self._loop, self._mind_time, **callbacks))
            return line[0]

        bus = await Bus.open(
            _Here(self._endpoint),
            kind=kind,
            address=address,
            session=session,
            transport=transport,
            prepare=prepare,
        )
        self._processes[bus] = process
        self._lines[bus] = line[0]
        return bus

    def kill(self, bus: Bus) -> None:
        """End the process of a bus, with all its connections: whoever watches it is told that it exited."""
        process = self._processes[bus]
        for other, line in self._lines.items():
            if self._processes[other] == process:
                line.is_dead = True
        self._core.kill(process, self._loop.time())
        self._mind_time()

    def cut(self, bus: Bus) -> None:
        """Break the connection of a bus. It comes back by itself."""
        self._lines[bus].cut()

    def restart(self) -> None:
        """Kill the broker, and start the next: every client comes back with what it holds."""
        self._core.restart(self._loop.time())
        self._mind_time()

    def close(self) -> None:
        """End it."""
        if self._timer is not None:
            self._timer.cancel()

    def _mind_time(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._core.next_deadline(), self._tick)

    def _tick(self) -> None:
        self._core.tick(self._loop.time())
        self._mind_time()


class _Here:
    """Finds the broker at once."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    def __call__(self) -> str:
        return self._endpoint

    def glance(self) -> str:
        """Return where it is."""
        return self._endpoint


class _Line:
    """One connection, a ``pisub.transport.base.Transport``: what it hands over comes in the loop's next turn."""

    def __init__(
        self,
        core: Any,
        process: ProcessIdentity,
        loop: asyncio.AbstractEventLoop,
        on_sent: Callable[[], None],
        *,
        on_message: Callable[[bytes, bytes], None],
        on_room: Callable[[], bool],
        on_link: Callable[[Link], None],
    ) -> None:
        self.is_quiet = True
        self.is_dead = False
        self._core = core
        self._process = process
        self._loop = loop
        self._on_sent = on_sent
        self._on_message = on_message
        self._on_room = on_room
        self._on_link = on_link
        self._route: bytes | None = None
        self._endpoint = ""
        self._messages: deque[tuple[bytes, bytes]] = deque()
        self._is_turn_due = False

    def dial(self, endpoint: str) -> None:
        """Connect; the link is up in the next turn."""
        self.hang_up()
        self._endpoint = endpoint
        if not self.is_dead:
            route: bytes = self._core.connect(self._deliver, self._on_cut, self._process, self._loop.time())
            self._route = route
            self._loop.call_soon(self._up, route)

    def hang_up(self) -> None:
        """Drop the connection."""
        route, self._route, self._endpoint = self._route, None, ""
        if route is not None:
            self._core.disconnect(route, self._loop.time())

    def cut(self) -> None:
        """Break the connection from outside."""
        route = self._route
        if route is not None:
            self._core.disconnect(route, self._loop.time())
            self._on_cut()

    def send(self, frame: bytes) -> bool:
        """Hand over one frame."""
        if self._route is None or self.is_dead:
            return False
        self._loop.call_soon(self._receive, self._route, frame)
        return True

    def look(self) -> None:
        """Take a turn soon."""
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._take_turn)

    def realign(self) -> None:
        """Nothing: a message here is whole."""

    def close(self, *, linger_ms: int = 0) -> None:  # noqa: ARG002  # what was handed over has arrived
        """Close; what was sent before arrives."""
        if self._route is not None:
            self._loop.call_soon(self.hang_up)

    def _up(self, route: bytes) -> None:
        if route == self._route:
            self._on_link(Link.UP)

    def _on_cut(self) -> None:
        """Break, and connect again by itself, as ZeroMQ does."""
        endpoint, self._route = self._endpoint, None
        self._messages.clear()
        if not self.is_dead:
            self._loop.call_soon(self._on_link, Link.DOWN)
            self._loop.call_soon(self.dial, endpoint)

    def _receive(self, route: bytes, frame: bytes) -> None:
        self._core.receive(route, frame, self._loop.time())
        self._on_sent()

    def _deliver(self, stamp: bytes, frame: bytes) -> None:
        self._messages.append((stamp, frame))
        self.look()

    def _take_turn(self) -> None:
        self._is_turn_due = False
        if self.is_dead:
            return
        while self._messages:
            self._on_message(*self._messages.popleft())
        self._on_room()


@contextlib.asynccontextmanager
async def broker() -> AsyncGenerator[MemoryBroker]:
    """Have a broker in memory for a block."""
    with tempfile.TemporaryDirectory(prefix="pisub-test-") as directory:
        made = MemoryBroker(Path(directory))
        try:
            yield made
        finally:
            made.close()


def _program() -> Any:
    """Import the broker's program. By name: the library knows no program, and this is the one place that runs one."""
    in_wheel = Path(__file__).parents[1] / "broker" / "memory.py"
    return importlib.import_module("pisub.broker.memory" if in_wheel.exists() else "broker.memory")
