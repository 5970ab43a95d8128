"""Waits that nobody stands in, settled by the session's host: who asked to be told is told, once, when one is over.

Owns when a subscription is over, and that it is cleared before it is told. The files are the record's.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from pisub.client.views import current_view
from pisub.clock import Clock
from pisub.errors import PisubError, UnknownRunError
from pisub.hosting.desk import Report
from pisub.record.layout import Layout
from pisub.record.reader import RunView
from pisub.record.subscriptions import (
    WaitSubscription,
    clear_subscription,
    list_subscriptions,
    sweep_subscriptions,
)
from pisub.runs.attention import is_waiting_reason

#: Subscriptions are looked at this often, whatever wakes; sources: contract, runs 6.6.
RECONCILE_S: Final = 1.0
SWEEP_S: Final = 60.0
#: Another session's subscription is removed when it has been over for so long: its host may be away.
FOREIGN_GRACE_MS: Final = 86_400_000

TIMED_OUT: Final = "timed-out"
NEEDS_ATTENTION: Final = "needs-attention"
UNRECONCILABLE: Final = "could-not-be-reconciled"
FAILED_TO_RECONCILE: Final = "reconciliation-failed"


class WaitEnded(msgspec.Struct, frozen=True, kw_only=True):
    """A wait in the background is over.

    Attributes:
        subscription: The one that it was.
        outcome: The run's state (``complete``, ``failed``, ``paused``, ``stopped``, ``rejected``), or
            ``needs-attention``, ``timed-out``, ``could-not-be-reconciled`` (the run is gone), ``reconciliation-failed``
            (its record cannot be read).
        text: A sentence about it.
        view: The run; None where it cannot be read.
    """

    subscription: WaitSubscription
    outcome: str
    text: str
    view: RunView | None = None


#: Told of each wait that is over. It may be a coroutine function. What it raises is reported; it is not told again.
WaitHandler = Callable[[WaitEnded], Awaitable[None] | None]


class Subscriptions:
    """The waits of one session. Runs between ``start`` and ``stop``.

    ``publish`` is called with each beside the handler; it must not raise.

    Delivery: at most once. A subscription is removed before its handler is called; one that cannot be removed stays,
    and nothing is told until it can. Without a handler all of them stay, for a host that has one.
    """

    def __init__(
        self,
        layout: Layout,
        session_id: str,
        *,
        clock: Clock,
        report: Report,
        publish: Callable[[WaitEnded], None] = lambda _: None,
    ) -> None:
        self._layout = layout
        self._publish = publish
        self._session_id = session_id
        self._clock = clock
        self._report = report
        self._handler: WaitHandler | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._next_sweep = 0.0
        self._stuck: set[str] = set()

    def tell(self, handler: WaitHandler) -> None:
        """Have a handler called with each wait that is over."""
        self._handler = handler
        self.wake()

    def start(self) -> None:
        """Begin looking. Idempotent."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._look_on(), name="pisub-wait-subscriptions")

    def wake(self) -> None:
        """Look now."""
        self._wake.set()

    async def stop(self) -> None:
        """End looking. What was removed is told before this returns."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _look_on(self) -> None:
        while True:
            self._wake.clear()
            # A wait that was removed must be told: its telling is not cut off by the host's end.
            settling = asyncio.ensure_future(self._settle_all())
            try:
                await asyncio.shield(settling)
            except asyncio.CancelledError:
                await asyncio.wait([settling])
                raise
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RECONCILE_S):
                    await self._wake.wait()

    async def _settle_all(self) -> None:
        try:
            if self._handler is not None:
                for ended in await asyncio.to_thread(self._find_over):
                    await self._settle(ended)
            now = self._clock.monotonic()
            if now >= self._next_sweep:
                self._next_sweep = now + SWEEP_S
                before_ms = self._clock.wall_ms() - FOREIGN_GRACE_MS
                await asyncio.to_thread(
                    sweep_subscriptions, self._layout, before_ms=before_ms, kept_session=self._session_id
                )
        except (PisubError, OSError) as error:  # the next look may find it well
            self._report("The waits in the background could not be looked at.", error)

    def _find_over(self) -> list[WaitEnded]:
        now_ms = self._clock.wall_ms()
        found = list_subscriptions(self._layout, session_id=self._session_id)
        return [ended for each in found if (ended := self._judge(each, now_ms)) is not None]

    def _judge(self, subscription: WaitSubscription, now_ms: int) -> WaitEnded | None:
        try:
            view = current_view(self._layout, subscription.run_id, now_ms=now_ms)
        except UnknownRunError as error:
            return WaitEnded(subscription=subscription, outcome=UNRECONCILABLE, text=str(error))
        except PisubError as error:
            return WaitEnded(subscription=subscription, outcome=FAILED_TO_RECONCILE, text=str(error))
        except OSError as error:  # for a while, perhaps: the wait goes on, until its time is up
            if now_ms < subscription.expires_at:
                return None
            return WaitEnded(subscription=subscription, outcome=FAILED_TO_RECONCILE, text=str(error))
        return judge(subscription, view, now_ms)

    async def _settle(self, ended: WaitEnded) -> None:
        token = ended.subscription.token
        try:
            is_ours = await asyncio.to_thread(clear_subscription, self._layout, token)
        except (PisubError, OSError) as error:
            if token not in self._stuck:
                self._stuck.add(token)
                self._report(f"Wait {token} is over and cannot be removed; it is told when it can be.", error)
            return
        self._stuck.discard(token)
        handler = self._handler
        if not is_ours or handler is None:
            return
        self._publish(ended)
        try:
            returned = handler(ended)
            if inspect.isawaitable(returned):
                await returned
        except Exception as error:  # noqa: BLE001  # the program's own code: the other waits are told all the same
            self._report("The handler of a wait that was over raised.", error)


def judge(subscription: WaitSubscription, view: RunView, now_ms: int) -> WaitEnded | None:
    """Tell whether a wait is over, by its run as it is at ``now_ms`` (Unix time); None is: not yet."""
    status = view.status
    if view.state.is_terminal and view.result is not None:
        outcome, text = view.state.value, f"Run {view.run_id} has ended: {view.state.value}."
    elif (
        status is not None
        and status.activity_state == "needs_attention"
        and (subscription.stop_on_attention or is_waiting_reason(status.activity_reason))
    ):
        outcome = NEEDS_ATTENTION
        text = f"Run {view.run_id} needs attention: {status.activity_reason or 'it does not say why'}. It goes on."
    elif now_ms >= subscription.expires_at:
        waited_s = (subscription.expires_at - subscription.created_at) / 1000
        outcome, text = TIMED_OUT, f"Run {view.run_id} was still {view.state.value} after {waited_s:g} s. It goes on."
    else:
        return None
    return WaitEnded(subscription=subscription, outcome=outcome, text=text, view=view)
