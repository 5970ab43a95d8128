"""The life of one run, as a table of states and what may happen in each.

    starting ──Begun──► running ──EndRequested, deadline──► stopping ──settled, or grace over──► draining ──► ended
        │                  └───────────EngineSettled───────────────────────────────────────────────▲
        └──Begun after a request to end────────────────────────────────────────────────────────────┘

Precedence of ends: stop, then timeout and failure, then interrupt, then complete. While anything of the process tree
may be alive the run is not ended: ``Commit`` comes once, last, and nothing changes a verdict after it.

Pure: no socket, clock, process or file. Time is monotonic seconds, passed in.
"""

from __future__ import annotations

import enum
from typing import Any, assert_never

import msgspec

from pisub.clock import WorkClock
from pisub.engines.base import Settled
from pisub.protocol.limits import KILL_GRACE_S
from pisub.protocol.runs import RunState

from . import effects as fx
from . import events as ev


class Phase(enum.Enum):
    """Where the run is, as the machine sees it."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    DRAINING = "draining"
    ENDED = "ended"


#: The work clock counts a gap of at most 2 s; ticking every second leaves room for a slow machine.
TICK_S = 1.0
#: Between two looks at a process tree that is being ended (contract, runs 3.5: 25 ms).
LOOK_EVERY_S = 0.025
#: What the child gets to return after its tree is gone and its grace is over.
SETTLE_S = 0.5

_RANK = {ev.Cause.STOP: 3, ev.Cause.TIMEOUT: 2, ev.Cause.INTERRUPT: 1}
_FAILURE_RANK = 2
_LINES = {
    ev.Cause.STOP: "subagent.run.stopped",
    ev.Cause.TIMEOUT: "subagent.run.timed_out",
    ev.Cause.INTERRUPT: "subagent.run.paused",
}


class Snapshot(msgspec.Struct, frozen=True):
    """What ``status.json`` says of the machine."""

    phase: Phase
    stopped: bool
    timed_out: bool
    reason: str | None
    error: str | None
    remaining_s: float | None
    waited_s: float
    is_waiting: bool


class Machine:
    """One run. Not thread-safe; owned by the shell's loop.

    Args:
        now: Monotonic seconds.
        timeout_s: Work time, waiting for a human not counted; None is no deadline.
        stop_grace_s: How long a child that was asked to end may take before its processes are ended.
    """

    def __init__(self, now: float, *, timeout_s: float | None, stop_grace_s: float) -> None:
        self._phase = Phase.STARTING
        self._clock = WorkClock(now, limit_s=timeout_s)
        self._clock_read = now
        self._grace_s = stop_grace_s
        self._request: ev.EndRequested | None = None
        self._settled: Settled | None = None
        self._failure: tuple[str, str] | None = None  # reason, error
        self._grace_at: float | None = None  # stopping: the child's time is over
        self._look_at: float | None = None  # draining: next look at the tree
        self._kill_at: float | None = None
        self._give_up_at: float | None = None
        self._empty_until: float | None = None  # draining: the tree is gone, the child has not returned

    @property
    def phase(self) -> Phase:
        """Where the run is."""
        return self._phase

    @property
    def is_stopping(self) -> bool:
        """Whether somebody's wish to end the run was accepted."""
        return self._request is not None

    def snapshot(self) -> Snapshot:
        """Return what the status file says of the run's life."""
        request = self._request
        return Snapshot(
            phase=self._phase,
            stopped=request is not None and request.cause is ev.Cause.STOP,
            timed_out=request is not None and request.cause is ev.Cause.TIMEOUT,
            reason=None if request is None else request.reason,
            error=None if request is None else request.text,
            remaining_s=self._clock.remaining_s,
            waited_s=self._clock.waited_s,
            is_waiting=self._clock.is_waiting,
        )

    def next_deadline(self) -> float | None:
        """Return when to hand in a ``Tick`` at the latest; None when only an event can change anything."""
        match self._phase:
            case Phase.STARTING | Phase.ENDED:
                return None
            case Phase.RUNNING:
                remaining = None if self._clock.is_waiting else self._clock.remaining_s
                return self._clock_read + (TICK_S if remaining is None else min(TICK_S, remaining))
            case Phase.STOPPING:
                return self._grace_at
            case Phase.DRAINING:
                return self._empty_until if self._empty_until is not None else self._look_at
            case _:
                assert_never(self._phase)

    def handle(self, event: ev.RunnerEvent, now: float) -> list[fx.RunnerEffect]:
        """Take one event; return what is to be done, in order. Never raises for any order of events."""
        if self._phase is Phase.ENDED:
            return []
        self._advance_clock(now)
        match event:
            case ev.Begun():
                return self._begin(now)
            case ev.EndRequested():
                return self._end(event, now)
            case ev.EngineSettled():
                return self._settle(event, now)
            case ev.TreeSeen(remaining):
                return self._tree(remaining, now)
            case ev.AskBegan():
                self._clock.start_waiting(now)
                return [fx.WriteStatus()] if self._phase is Phase.RUNNING else []
            case ev.AskEnded():
                self._clock.stop_waiting(now)
                return [fx.WriteStatus()] if self._phase is Phase.RUNNING else []
            case ev.Tick():
                return self._tick(now)
            case _:
                assert_never(event)

    # The transitions. --------------------------------------------------------------------------------------------

    def _begin(self, now: float) -> list[fx.RunnerEffect]:
        if self._phase is not Phase.STARTING:
            return []
        if self._request is not None:  # stopped before it began: no child, no process
            request = self._request
            self._settled = Settled(was_cancelled=True)
            return [fx.WriteStatus(), *self._announce(request), *self._drain(now, grace_s=0.0)]
        self._phase = Phase.RUNNING
        return [fx.WriteStatus(), fx.StartEngine()]

    def _end(self, event: ev.EndRequested, now: float) -> list[fx.RunnerEffect]:
        if not self._is_stronger(event):
            return []
        self._request = event
        match self._phase:
            case Phase.STARTING:
                return []
            case Phase.RUNNING:
                self._phase = Phase.STOPPING
                self._grace_at = now + self._grace_s
                return [
                    *self._announce(event),
                    fx.WriteStatus(),
                    fx.CancelEngine(),
                    fx.CancelAsks(event.text),
                    fx.PassOn(event.cause.value),
                ]
            case Phase.STOPPING | Phase.DRAINING:
                return [*self._announce(event), fx.WriteStatus(), fx.PassOn(event.cause.value)]
            case Phase.ENDED:
                return []
            case _:
                assert_never(self._phase)

    def _settle(self, event: ev.EngineSettled, now: float) -> list[fx.RunnerEffect]:
        if self._settled is not None or self._phase is Phase.STARTING:
            return []
        self._settled = event.settled
        # What a child says while it is being ended is its failure only where it reports an error.
        self._failure = _failure_of(event) if self._request is None or event.settled.error is not None else None
        match self._phase:
            case Phase.RUNNING:
                return self._drain(now, grace_s=KILL_GRACE_S)
            case Phase.STOPPING:
                left = 0.0 if self._grace_at is None else max(0.0, self._grace_at - now)
                return self._drain(now, grace_s=left)
            case Phase.DRAINING:
                return self._commit(is_cleanup_proven=True) if self._empty_until is not None else []
            case _:
                return []

    def _tick(self, now: float) -> list[fx.RunnerEffect]:
        match self._phase:
            case Phase.RUNNING if self._clock.is_expired:
                text = f"The run used up the {self._clock.limit_s:g} s that it had for its work."
                return self._end(ev.EndRequested(ev.Cause.TIMEOUT, "timeout", text), now)
            case Phase.STOPPING if self._grace_at is not None and now >= self._grace_at:
                return self._drain(now, grace_s=KILL_GRACE_S)
            case Phase.DRAINING if self._empty_until is not None:
                return self._commit(is_cleanup_proven=True) if now >= self._empty_until else []
            case Phase.DRAINING if self._look_at is not None and now >= self._look_at:
                self._look_at = now + LOOK_EVERY_S
                return [fx.LookAtTree()]
            case _:
                return []

    def _drain(self, now: float, *, grace_s: float) -> list[fx.RunnerEffect]:
        """Nothing of the child may be left: what is gets SIGTERM, after ``grace_s`` SIGKILL."""
        self._phase = Phase.DRAINING
        self._kill_at = now + grace_s
        self._give_up_at = self._kill_at + KILL_GRACE_S
        self._look_at = now + LOOK_EVERY_S
        return [fx.CancelAsks("The run is over."), fx.LookAtTree()]

    def _tree(self, remaining: int, now: float) -> list[fx.RunnerEffect]:
        if self._phase is not Phase.DRAINING or self._empty_until is not None:
            return []
        if remaining == 0:
            if self._settled is not None:
                return self._commit(is_cleanup_proven=True)
            self._empty_until = now + SETTLE_S
            return []
        if self._give_up_at is not None and now >= self._give_up_at:
            return self._commit(is_cleanup_proven=False)
        return [fx.SignalTree(must_die=self._kill_at is not None and now >= self._kill_at)]

    def _commit(self, *, is_cleanup_proven: bool) -> list[fx.RunnerEffect]:
        self._phase = Phase.ENDED
        verdict = self._judge(is_cleanup_proven=is_cleanup_proven)
        line = {
            RunState.COMPLETE: "subagent.step.completed",
            RunState.STOPPED: "subagent.step.stopped",
            RunState.PAUSED: "subagent.step.paused",
        }.get(verdict.state, "subagent.step.failed")
        data: dict[str, Any] = {"index": 0, "exitCode": verdict.exit_code}
        if verdict.reason is not None:
            data["reason"] = verdict.reason
        again = [] if self._request is None else [fx.PassOn(self._request.cause.value)]
        return [*again, fx.WriteJournal(line, data), fx.Commit(verdict)]

    # The judgement. ----------------------------------------------------------------------------------------------

    def _judge(self, *, is_cleanup_proven: bool) -> fx.Verdict:
        request, failure = self._request, self._failure
        state, reason, error = RunState.COMPLETE, None, None
        if request is not None and (failure is None or _RANK[request.cause] >= _FAILURE_RANK):
            state = {
                ev.Cause.STOP: RunState.STOPPED,
                ev.Cause.TIMEOUT: RunState.FAILED,
                ev.Cause.INTERRUPT: RunState.PAUSED,
            }[request.cause]
            reason, error = request.reason, request.text
        elif failure is not None:
            state, (reason, error) = RunState.FAILED, failure
        if not is_cleanup_proven:
            error = " ".join(filter(None, (error, "Some of its processes could not be ended: cleanup unproven.")))
        return fx.Verdict(
            state=state,
            reason=reason,
            error=error,
            exit_code=0 if state in (RunState.COMPLETE, RunState.PAUSED) else 1,
            settled=self._settled,
            is_cleanup_proven=is_cleanup_proven,
            is_engine_hung=self._settled is None,
            was_stopped=request is not None and request.cause is ev.Cause.STOP,
            has_timed_out=request is not None and request.cause is ev.Cause.TIMEOUT,
        )

    def _is_stronger(self, event: ev.EndRequested) -> bool:
        """Stop beats interrupt; after a stop or a timeout was accepted, nothing else is."""
        if event.cause is ev.Cause.INTERRUPT and self._settled is not None:
            return False  # the child has ended: there is nothing left to pause
        held = 0 if self._request is None else _RANK[self._request.cause]
        if held >= _RANK[ev.Cause.TIMEOUT]:
            return False
        return _RANK[event.cause] > held

    def _announce(self, event: ev.EndRequested) -> list[fx.RunnerEffect]:
        return [fx.WriteJournal(_LINES[event.cause], {"reason": event.reason, "message": event.text})]

    def _advance_clock(self, now: float) -> None:
        if self._phase is Phase.RUNNING:
            self._clock.tick(now)
        self._clock_read = now


def _failure_of(event: ev.EngineSettled) -> tuple[str, str] | None:
    settled = event.settled
    if settled.error is not None:
        return settled.reason or "agent-error", settled.error
    if settled.was_cancelled:
        return "agent-cancelled", "The agent cancelled itself; nobody had asked for it."
    if not settled.text.strip() and not event.has_artifacts and settled.structured is msgspec.UNSET:
        return "no-output", "The agent ended without a text and without a file: nothing shows that it did anything."
    return None
