"""The ends of a session's runs: brought to the host's handler, each once or in groups, whoever noticed them first.

Messages only wake this; the outbox on disk is what is delivered. It looks again every few seconds and after every gap
in the connection, so a lost message delays an end and loses none. A watch on its address notices a run's death.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from pisub.clock import Clock
from pisub.errors import PisubError
from pisub.hosting.batching import Batcher, BatchTimes
from pisub.hosting.desk import Report
from pisub.hosting.nested import Whose, whose_end
from pisub.protocol.runs import RunState, runner_address
from pisub.protocol.session import GoneReason, Terminated
from pisub.record.dirs import list_names
from pisub.record.layout import Layout
from pisub.record.model import Completion
from pisub.record.reader import list_runs
from pisub.record.sessions import Delivery, Outbox
from pisub.runs.reconcile import reconcile_all

T = TypeVar("T")

#: The outbox is read at least this often, whatever was or was not heard.
REREAD_S: Final = 5.0

#: Called with each end. It may be a coroutine function. What it raises is reported, and the end goes to the next host.
CompletionHandler = Callable[[Delivery], Awaitable[None] | None]


class CompletionGroup(msgspec.Struct, frozen=True):
    """Ends that are told together.

    Attributes:
        deliveries: In the order of ending.
        is_quiet: All are plain successes: no need to interrupt anybody.
    """

    deliveries: tuple[Delivery, ...]
    is_quiet: bool


#: Called with each group of ends; as ``CompletionHandler`` otherwise.
CompletionsHandler = Callable[[CompletionGroup], Awaitable[None] | None]


class Watcher(Protocol):
    """The part of a bus that is used here."""

    @property
    def is_connected(self) -> bool:
        """Whether the broker knows this client now."""
        ...

    async def watch(self, address: str, on_gone: Callable[[Terminated], None]) -> None:
        """Have ``on_gone`` called once, when the peer at ``address`` is gone."""
        ...


class Completions:
    """The pump between a session's outbox and one handler. Runs between ``start`` and ``stop``.

    Delivery: one at a time, in the order of ending. An end is taken in the ledger before the handler is called and done
    after it returned; a host that dies between leaves it to the next, which says ``redelivered``.
    """

    def __init__(self, bus: Watcher, layout: Layout, session_id: str, *, clock: Clock, report: Report) -> None:
        self._bus = bus
        self._layout = layout
        self._session_id = session_id
        self._clock = clock
        self._report = report
        self._wake = asyncio.Event()
        self._has_news = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._delivering: asyncio.Task[None] | None = None
        self._call: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._watched: set[str] = set()
        #: Ends that this host has taken, done or not: it never takes one twice.
        self._taken: set[str] = set()
        #: Ends that wait for others to be told with them; not taken yet.
        self._batcher: Batcher[Completion] = Batcher()
        #: Whoever is told of the ends; None leaves every end in the outbox, for a host that has somebody.
        self._handler: CompletionsHandler | None = None

    def tell_each(self, handler: CompletionHandler) -> None:
        """Have a handler called with each end by itself, at once."""

        async def tell(group: CompletionGroup) -> None:
            for delivery in group.deliveries:
                await _call(handler, delivery)

        self._batcher = Batcher(BatchTimes(is_enabled=False))
        self._handler = tell
        self.wake()

    def tell_groups(self, handler: CompletionsHandler, times: BatchTimes) -> None:
        """Have a handler called with groups: a failure at once and alone, successes held for each other."""
        self._batcher = Batcher(times)
        self._handler = handler
        self.wake()

    def start(self, generation: str) -> None:
        """Begin delivering. ``generation`` names this host in the ledger, for ever."""
        if self._delivering is None:
            loop = asyncio.get_running_loop()
            self._is_stopping = False
            # Two tasks: a handler that takes its time keeps nobody from noticing a death.
            self._looking = loop.create_task(self._look(), name="pisub-watch-runs")
            self._delivering = loop.create_task(self._deliver_all(generation), name="pisub-completions")

    def wake(self) -> None:
        """Look now."""
        self._wake.set()

    def has_ends(self) -> bool:
        """Tell whether ends wait for this host to tell them: held for others, just found, or with the handler now.

        Those that it could not tell wait for the next host. Without a handler none waits.

        Raises:
            OSError: The outbox cannot be read.
        """
        if self._handler is None or self._delivering is None:
            return False
        names = list_names(self._layout.session(self._session_id).completions)
        waiting = {name.removesuffix(".json").replace(".", ":", 1) for name in names if name.endswith(".json")}
        return self._call is not None or not waiting <= self._taken

    async def stop(self) -> None:
        """End delivering. A handler at work is cancelled, and its end goes to the next host.

        The delivery itself is not cut off: what the handler has taken is said to be done before this returns.
        """
        looking, delivering = self._looking, self._delivering
        self._looking = self._delivering = None
        if looking is None or delivering is None:
            return
        self._is_stopping = True
        self._has_news.set()
        looking.cancel()
        if self._call is not None:
            self._call.cancel()
        await asyncio.wait([looking, delivering])

    async def _look(self) -> None:
        while True:
            self._wake.clear()
            self._has_news.set()
            try:
                await asyncio.to_thread(self._reconcile)
                await self._watch_runs()
            except (PisubError, OSError) as error:
                # A full disk, no descriptors, a broker that is away: the next look may find it well.
                self._report("The session's runs could not be looked at.", error)
            self._has_news.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REREAD_S):
                    await self._wake.wait()

    async def _deliver_all(self, generation: str) -> None:
        outbox: Outbox | None = None
        while not self._is_stopping:
            await self._wait_for_news()
            try:
                if outbox is None:
                    outbox = await asyncio.to_thread(Outbox, self._layout, self._session_id)
                await self._drain(outbox, generation)
            except (PisubError, OSError) as error:
                self._report("The session's completions could not be read.", error)

    async def _wait_for_news(self) -> None:
        due = self._batcher.next_deadline()
        left_s = None if due is None else max(0.0, due - self._clock.monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await self._has_news.wait()
        self._has_news.clear()

    def _reconcile(self) -> None:
        reconcile_all(self._layout, now_ms=self._clock.wall_ms(), session_id=self._session_id)

    async def _watch_runs(self) -> None:
        views = await asyncio.to_thread(list_runs, self._layout, session_id=self._session_id)
        for address in (runner_address(view.run_id) for view in views if view.started is not None):
            if address not in self._watched and self._bus.is_connected:
                self._watched.add(address)
                try:
                    await self._bus.watch(address, self._gone)
                except PisubError:
                    self._watched.discard(address)
                    raise

    def _gone(self, message: Terminated) -> None:
        self._watched.discard(message.address)
        # A run that is not at the broker, and lives, is watched again at the next look, not at once.
        if message.reason is not GoneReason.UNKNOWN:
            self.wake()

    async def _drain(self, outbox: Outbox, generation: str) -> None:
        if self._handler is None:
            return
        held = {each.delivery_key for each in self._batcher.held}
        for completion in await asyncio.to_thread(self._own_ends, outbox):
            if completion.delivery_key not in self._taken | held:
                is_success = completion.state is RunState.COMPLETE
                for group in self._batcher.add(completion, self._clock.monotonic(), is_success=is_success):
                    await self._tell(outbox, generation, group.items, is_quiet=group.is_quiet)
        for group in self._batcher.tick(self._clock.monotonic()):
            await self._tell(outbox, generation, group.items, is_quiet=group.is_quiet)

    def _own_ends(self, outbox: Outbox) -> list[Completion]:
        """Return the ends in the outbox that are this host's to tell; those that a parent had are done with."""
        ends: list[Completion] = []
        for completion in outbox.pending():
            match whose_end(self._layout, completion):
                case Whose.HOST:
                    ends.append(completion)
                case Whose.PARENT:
                    outbox.done(completion)
                case Whose.UNDECIDED:
                    pass
        return ends

    async def _tell(
        self, outbox: Outbox, generation: str, completions: Sequence[Completion], *, is_quiet: bool
    ) -> None:
        """Take a group in the ledger, have it handled, and say that it is done."""
        deliveries: list[Delivery] = []
        for completion in completions:
            if self._is_stopping:
                break  # what was not taken stays for the next host
            delivery = await asyncio.to_thread(outbox.take, completion, generation)
            self._taken.add(completion.delivery_key)
            if delivery is not None:
                deliveries.append(delivery)
        if deliveries:
            await self._deliver(outbox, CompletionGroup(tuple(deliveries), is_quiet))

    async def _deliver(self, outbox: Outbox, group: CompletionGroup) -> None:
        call = self._call = asyncio.get_running_loop().create_task(_call(self._handler, group))
        if self._is_stopping:
            call.cancel()
        await asyncio.wait([call])
        self._call = None
        error = None if call.cancelled() else call.exception()
        if call.cancelled() or error is not None:
            keys = ", ".join(each.delivery_key for each in group.deliveries)
            self._report(f"The handler of completions failed for {keys}; the next host gets it.", error)
        else:
            for delivery in group.deliveries:
                await asyncio.to_thread(outbox.done, delivery.completion)


async def _call(handler: Callable[[T], Awaitable[None] | None] | None, argument: T) -> None:
    if handler is not None:
        returned = handler(argument)
        if inspect.isawaitable(returned):
            await returned
