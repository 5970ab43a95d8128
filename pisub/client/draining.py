"""Waiting until nothing of a session goes on any more: what a program without a human does before it ends.

Owns the rounds and their one deadline. What ends a round is ``waiting``'s.
"""

from __future__ import annotations

import asyncio

import msgspec

from pisub.client.waiter import Waiter
from pisub.client.waiting import DEFAULT_TIMEOUT_MS, Identity, WaitEnd
from pisub.protocol.runs import RunState
from pisub.record.reader import RunView


class IdleOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended.

    Attributes:
        end: ``nothing``: nothing goes on. ``completed``: a run failed, and it was not waited for what goes on beside
            it. Else as of a wait: a run waits for a human, the time is up, the abort came, something cannot be
            confirmed.
        views: The runs that were waited for, as they were when their round ended, the first round's first.
        active: What was still active in the last round.
        reason: A sentence, where there is more to say.
    """

    end: WaitEnd
    views: tuple[RunView, ...] = ()
    active: tuple[Identity, ...] = ()
    reason: str = ""

    @property
    def failed(self) -> tuple[RunView, ...]:
        """The runs that failed. One that was stopped, or is paused, is none."""
        return tuple(view for view in self.views if view.state in (RunState.FAILED, RunState.REJECTED))

    @property
    def is_idle(self) -> bool:
        """Whether nothing goes on and nothing failed."""
        return self.end is WaitEnd.NOTHING and not self.failed


async def wait_until_idle(
    waiter: Waiter, *, timeout_ms: int = DEFAULT_TIMEOUT_MS, abort: asyncio.Event | None = None
) -> IdleOutcome:
    """Wait for all that is active, again and again, until nothing is.

    A run that is only quiet is waited through. The first round after which a run has failed is the last.

    Args:
        waiter: Of the session.
        timeout_ms: When to give up, all rounds together.
        abort: Set to give up now.

    Raises:
        InvalidArgumentError: ``timeout_ms`` is not a time.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    left_ms = timeout_ms
    ended: dict[str, RunView] = {}
    while True:
        outcome = await waiter.wait(is_all=True, timeout_ms=left_ms, stop_on_attention=False, abort=abort)
        ended |= {view.run_id: view for view in outcome.views}
        verdict = outcome.verdict
        idle = IdleOutcome(end=verdict.end, views=tuple(ended.values()), active=verdict.active, reason=verdict.reason)
        if verdict.end is not WaitEnd.COMPLETED or idle.failed:
            return idle
        left_ms = max(1, round(1000 * (deadline - loop.time())))
