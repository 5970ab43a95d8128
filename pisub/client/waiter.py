"""A wait carried out: snapshots of the files, sleeps that messages cut short, providers of other work beside the runs.

The rules are in ``waiting``. Nothing here stops anything: who gives up leaves the work to itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Collection

import msgspec

from pisub.client.awaiting import awaiting
from pisub.client.background_work import SILENT, BackgroundWork, WorkSnapshot
from pisub.client.bus import Bus
from pisub.client.caller import calling_run
from pisub.client.views import current_view, current_views
from pisub.client.waiting import (
    DEFAULT_TIMEOUT_MS,
    MIN_POLL_MS,
    POLL_MS,
    Identity,
    Item,
    Snapshot,
    Verdict,
    WaitCore,
    WaitEnd,
    WaitMode,
    pick_id,
)
from pisub.clock import SystemClock
from pisub.errors import InvalidArgumentError, PisubError, UnknownRunError
from pisub.ids import new_id
from pisub.protocol.limits import MAX_DURATION_MS
from pisub.protocol.runs import ASYNC_COMPLETE_TOPIC
from pisub.record.dirs import list_names
from pisub.record.layout import Layout
from pisub.record.reader import RunView
from pisub.record.subscriptions import WaitSubscription, subscribe
from pisub.runs.attention import is_waiting_reason


class WaitOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a wait ended.

    Attributes:
        verdict: Why, and who is finished or active.
        views: The runs that were waited for, as they are now.
    """

    verdict: Verdict
    views: tuple[RunView, ...]

    @property
    def end(self) -> WaitEnd:
        """Why it ended."""
        return self.verdict.end


class Waiter:
    """Waits in the name of one session.

    Args:
        layout: The record.
        session_id: Whose work is waited for.
        bus: Cuts the sleeps short, where there is one.
        work: Who else has work.
        poll_ms: The longest sleep.
    """

    def __init__(
        self,
        layout: Layout,
        session_id: str,
        *,
        bus: Bus | None = None,
        work: BackgroundWork | None = None,
        poll_ms: int = POLL_MS,
    ) -> None:
        self._layout = layout
        self._session_id = session_id
        self._bus = bus
        self._work = work or BackgroundWork()
        self._poll_s = max(MIN_POLL_MS, poll_ms) / 1000

    async def wait(
        self,
        run_id: str | None = None,
        *,
        is_all: bool = False,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        stop_on_attention: bool = True,
        abort: asyncio.Event | None = None,
    ) -> WaitOutcome:
        """Wait for the first, for all, or for one of the session's works that are active now.

        Args:
            run_id: The one, by its id or a beginning of it that is unique in the session.
            is_all: All of them; with ``run_id`` it changes nothing.
            timeout_ms: When to give up.
            stop_on_attention: Whether work that is only quiet ends the wait.
            abort: Set to give up now.

        Raises:
            InvalidArgumentError: ``timeout_ms`` is not a time.
            UnknownRunError: The session has no such run.
            AmbiguousIdError: ``run_id`` begins several.
        """
        _check_timeout(timeout_ms)
        named = None if run_id is None else Identity(self.resolve(run_id), self._session_id)
        mode = WaitMode.ID if named else WaitMode.ALL if is_all else WaitMode.FIRST
        core = WaitCore(mode, stop_on_attention=stop_on_attention)
        wake = asyncio.Event()
        aborting = abort or asyncio.Event()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        async with self._wakes(wake):
            snapshot = await self._look(None if named is None else {named}, aborting, deadline)
            verdict = core.begin(snapshot, named=named)
            with awaiting(self._layout, [each.item for each in core.awaited if not each.provider]):
                while verdict is None:
                    left_s = deadline - loop.time()
                    if aborting.is_set() or left_s <= 0:
                        verdict = core.give_up(WaitEnd.ABORTED if aborting.is_set() else WaitEnd.TIMEOUT, snapshot)
                        break
                    await _first_of(wake, aborting, timeout_s=min(self._poll_s, left_s))
                    wake.clear()
                    snapshot = await self._look(core.awaited, aborting, deadline)
                    verdict = core.look(snapshot)
        return WaitOutcome(verdict=verdict, views=await asyncio.to_thread(self._views_of, core.awaited))

    async def subscribe(
        self, run_id: str, *, timeout_ms: int = DEFAULT_TIMEOUT_MS, stop_on_attention: bool = True
    ) -> WaitSubscription:
        """Have the session's host told when a run has ended, needs somebody, or takes too long; return at once.

        It is a file: it outlives this process and the host. Arguments and errors as for ``wait``.

        Raises:
            OSError: The disk is full, or the like.
        """
        _check_timeout(timeout_ms)
        now_ms = SystemClock().wall_ms()
        subscription = WaitSubscription(
            token=new_id(),
            session_id=self._session_id,
            run_id=await asyncio.to_thread(self.resolve, run_id),
            requested_id=run_id,
            created_at=now_ms,
            expires_at=now_ms + timeout_ms,
            stop_on_attention=stop_on_attention,
        )
        await asyncio.to_thread(subscribe, self._layout, subscription)
        return subscription

    def resolve(self, text: str) -> str:
        """Return the run of this session that a text means. An exact id is looked up, not looked for.

        Raises:
            UnknownRunError: None.
            AmbiguousIdError: Several.
        """
        session = self._layout.session(self._session_id)
        with contextlib.suppress(PisubError):
            view = current_view(self._layout, text, now_ms=SystemClock().wall_ms())
            if view.spec.session_id == self._session_id:
                return text
        return pick_id(text, list_names(session.runs))

    async def _look(self, awaited: Collection[Identity] | None, aborting: asyncio.Event, deadline: float) -> Snapshot:
        """Take a snapshot: of everything, or of who is awaited."""
        runs = await asyncio.to_thread(self._runs, awaited)
        names = self._work.names if awaited is None else tuple({each.provider for each in awaited if each.provider})
        if not names:
            return Snapshot(items=tuple(runs))
        work = await self._ask(names, aborting, deadline)
        if work is None and awaited is None:
            return Snapshot(items=tuple(runs), problems=dict.fromkeys(names, SILENT))
        if work is None:  # the wait is given up next; until then, who was active is
            return Snapshot(
                items=(*runs, *(Item(identity=each, is_active=True) for each in awaited or () if each.provider))
            )
        active = {Identity(item, self._session_id, name) for name, listed in work.items.items() for item in listed}
        # Who is waited for and is listed no more has ended; where nothing is listed at all, nobody has.
        ended = {each for each in awaited or () if each.provider in work.items} - active
        items = (Item(identity=each, is_active=each in active) for each in sorted(active | ended))
        return Snapshot(items=(*runs, *items), problems=work.problems)

    async def _ask(self, names: Collection[str], aborting: asyncio.Event, deadline: float) -> WorkSnapshot | None:
        """Ask the providers; None when the wait is over before they have said something."""
        loop = asyncio.get_running_loop()
        now_ms = SystemClock().wall_ms()
        asking = loop.create_task(self._work.snapshot(self._session_id, now_ms=now_ms, names=names))
        abort = loop.create_task(aborting.wait())
        try:
            left_s = max(0.0, deadline - loop.time())
            await asyncio.wait([asking, abort], timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else None
        finally:
            for task in (asking, abort):
                task.cancel()
            await asyncio.wait([asking, abort])

    def _runs(self, awaited: Collection[Identity] | None) -> list[Item]:
        """Return the session's runs that go on, or exactly those awaited: a constant number of reads each."""
        now_ms = SystemClock().wall_ms()
        if awaited is None:
            views = current_views(self._layout, now_ms=now_ms, session_id=self._session_id)
            # A nested run is waited for by its parent, and by nobody else.
            caller = calling_run(self._layout)
            return [self._item(view) for view in views if view.spec.parent_run_id == caller]
        return [self._item(view) for view in self._views_of(awaited)]

    def _views_of(self, awaited: Collection[Identity]) -> tuple[RunView, ...]:
        views: list[RunView] = []
        for identity in sorted(each for each in awaited if not each.provider):
            with contextlib.suppress(UnknownRunError):  # gone: it is not among the items then
                views.append(current_view(self._layout, identity.item, now_ms=SystemClock().wall_ms()))
        return tuple(views)

    def _item(self, view: RunView) -> Item:
        # A terminal state whose result is not there yet is an end on its way.
        is_active = not (view.state.is_terminal and view.result is not None)
        status = view.status
        reason = "" if status is None else status.activity_reason or ""
        needs = status is not None and status.activity_state == "needs_attention"
        return Item(
            identity=Identity(view.run_id, self._session_id),
            is_active=is_active,
            attention=(reason or "needs attention") if needs else "",
            must_stop=is_waiting_reason(reason),
        )

    @contextlib.asynccontextmanager
    async def _wakes(self, wake: asyncio.Event) -> AsyncGenerator[None]:
        topics = [ASYNC_COMPLETE_TOPIC, *self._work.wake_channels]
        unsubscribe = (
            []
            if self._bus is None
            else [await self._bus.subscribe(topic, lambda _: wake.set(), scope=self._session_id) for topic in topics]
        )
        try:
            yield
        finally:
            for each in unsubscribe:
                each()


def _check_timeout(timeout_ms: int) -> None:
    if not 1 <= timeout_ms <= MAX_DURATION_MS:
        raise InvalidArgumentError(f"Give 1 to {MAX_DURATION_MS} milliseconds.", field="timeoutMs")


async def _first_of(*events: asyncio.Event, timeout_s: float) -> None:
    tasks = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
