"""The runner's connection to the broker: opened beside the run, never in its way.

A run needs no broker: whatever fails here is logged and costs only speed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable

import msgspec
from structlog.typing import FilteringBoundLogger

from pisub.client.bus import Bus
from pisub.client.bus_types import BusState, Incoming, Sender
from pisub.config import Settings
from pisub.errors import PisubError
from pisub.protocol.base import Message
from pisub.protocol.checkpoint import HOST_READY_TOPIC, AnswerPosted, AskResult, ChildAsk
from pisub.protocol.delivery import Priority
from pisub.protocol.runs import InboxChanged, InboxRead, runner_address
from pisub.protocol.session import Authority, PeerKind
from pisub.runs.spec import RunSpec

#: A run that ends while the connection is being made waits for it this long before it goes without a message.
CONNECT_PATIENCE_S = 1.0
FLUSH_S = 0.5


class Hooks(msgspec.Struct, frozen=True):
    """What the link tells the shell. All are called from the loop and return at once."""

    on_inbox: Callable[[], InboxRead]
    on_answer: Callable[[str], None]
    on_host: Callable[[], None]
    on_connected: Callable[[], None]
    on_lost: Callable[[], None]


ServeChild = Callable[[ChildAsk, Sender], Awaitable[AskResult]]


class Link:
    """The connection, present or not. Used from one loop."""

    def __init__(self, settings: Settings, spec: RunSpec, hooks: Hooks, log: FilteringBoundLogger) -> None:
        self._settings = settings
        self._spec = spec
        self._hooks = hooks
        self._log = log
        self._bus: Bus | None = None
        self._opening: asyncio.Task[None] | None = None
        self._has_failed = False
        #: The newest of each topic from before the connection: whoever follows the run learns of it late, not never.
        self._unsent: dict[str, tuple[Message, int]] = {}
        self._serve_child: ServeChild | None = None

    @property
    def bus(self) -> Bus | None:
        """The bus, once it was connected; it reconnects by itself."""
        return self._bus

    @property
    def is_connecting(self) -> bool:
        """Whether the first connection is still being made."""
        return self._bus is None and not self._has_failed

    def serve_children(self, handler: ServeChild) -> None:
        """Have the asks of the run's processes answered by ``handler``. Before ``start``."""
        self._serve_child = handler

    def start(self) -> None:
        """Begin to connect, in the background."""
        self._opening = asyncio.create_task(self._open(), name="bus")

    def publish(self, topic: str, message: Message, *, priority: int = Priority.NORMAL) -> None:
        """Publish in the session's scope, at once or when the first connection is made; never blocks."""
        if self.is_connecting:
            self._unsent[topic] = (message, priority)
        elif self._bus is not None:
            with contextlib.suppress(PisubError):  # too large, or closed: the files have it
                self._bus.publish(topic, message, scope=self._spec.session_id, priority=priority)

    async def settle(self) -> None:
        """Wait a moment for a connection that is being made."""
        if self._opening is not None:
            await asyncio.wait({self._opening}, timeout=CONNECT_PATIENCE_S)

    async def close(self) -> None:
        """Hand over what waits, say goodbye, close. Bounded in time."""
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
            await asyncio.wait({self._opening}, timeout=FLUSH_S)
        if self._bus is not None:
            await self._bus.flush(FLUSH_S)
            await self._bus.close()

    async def _open(self) -> None:
        try:
            await Bus.connect(
                self._settings,
                kind=PeerKind.RUNNER,
                address=runner_address(self._spec.run_id),
                session=self._spec.session_id,
                # The broker refuses then what the agent's code sends past us, too, and all that descends from it.
                authority=None if self._spec.agent.can_ask else Authority.OWNER & ~Authority.ASK,
                prepare=self._prepare,
            )
        except (PisubError, OSError) as error:
            self._log.warning("bus_unavailable", error=str(error))
            self._has_failed = True
            self._hooks.on_host()  # asks that waited for a connection ask again, and learn that there is none

    def _prepare(self, bus: Bus) -> None:
        """Register what the run's processes and controllers send: they know its address before it is reachable."""
        bus.serve(InboxChanged, self._read_inbox)
        if self._serve_child is not None:
            bus.serve(ChildAsk, self._serve_child)
        bus.on_tell(AnswerPosted, self._note_answer)
        # With the Hello: a host that comes after the first ask was sent, and before a later word, would be missed.
        bus.subscribe_first(HOST_READY_TOPIC, self._note_host, scope=self._spec.session_id)
        bus.on_state(functools.partial(self._note_state, bus))

    def _read_inbox(self, _message: InboxChanged, _sender: Sender) -> InboxRead:
        return self._hooks.on_inbox()

    def _note_answer(self, message: AnswerPosted, _sender: Sender) -> None:
        self._hooks.on_answer(message.ask_id)

    def _note_host(self, _incoming: Incoming) -> None:
        self._hooks.on_host()

    def _note_state(self, bus: Bus, state: BusState) -> None:
        match state:
            case BusState.CONNECTED | BusState.RESYNC:
                self._bus = bus
                self._hooks.on_connected()
                unsent, self._unsent = self._unsent, {}
                for topic, (message, priority) in unsent.items():
                    self.publish(topic, message, priority=priority)
            case BusState.DISCONNECTED:
                self._hooks.on_lost()
            case BusState.CLOSED:
                pass
