"""Who owns which attempt, and what it was answered: the state machine of structured delegation. Pure.

For each valid request, in this order: an attempt that is active or settled is silent; one that was cancelled before it
came ends so; a full history refuses; a node that another attempt owns refuses; a host that is not active refuses; else
it starts. Each attempt is answered at most once, also where the history is full: identities that were known before are
remembered beyond its bound, and no new one is taken.
"""

from __future__ import annotations

from typing import Any, assert_never

import msgspec

from pisub.hosting.delegation_request import Attempt, Delegation, Invalid, Legacy, parse_cancel, parse_request
from pisub.protocol.delegation import DelegationResponse, DelegationStarted, DelegationUpdate
from pisub.protocol.limits import MAX_DELEGATION_HISTORY

# What comes in. ------------------------------------------------------------------------------------------------------


class Event(msgspec.Struct, frozen=True):
    """Base of all events."""


class RequestCame(Event, frozen=True):
    """A payload on the request's topic, or in a call; ``payload`` is plain data without the wire's tag."""

    payload: object


class CancelCame(Event, frozen=True):
    """A payload on the topic of cancellations."""

    payload: object


class Progressed(Event, frozen=True):
    """A running attempt's snapshot."""

    attempt: Attempt
    update: DelegationUpdate


class Ended(Event, frozen=True):
    """A running attempt ended; ``response`` is what to answer, but for a cancellation, which wins."""

    attempt: Attempt
    response: DelegationResponse


class Reset(Event, frozen=True):
    """The host's life is over, or begins anew: ownership and history are gone, and nothing is answered any more."""


# What goes out. ------------------------------------------------------------------------------------------------------


class Effect(msgspec.Struct, frozen=True):
    """Base of all effects."""


class Publish(Effect, frozen=True):
    """Publish a message on the topic of its name."""

    message: DelegationStarted | DelegationUpdate | DelegationResponse


class Launch(Effect, frozen=True):
    """Run it; say ``Ended`` once."""

    delegation: Delegation


class Abort(Effect, frozen=True):
    """End a running attempt; say ``Ended`` when it has."""

    attempt: Attempt


DelegationEvent = RequestCame | CancelCame | Progressed | Ended | Reset
DelegationEffect = Publish | Launch | Abort


class _Active(msgspec.Struct):
    """A running attempt."""

    is_cancelled: bool = False
    shown: DelegationUpdate | None = None


class DelegationCore:
    """The attempts of one host. Not thread-safe.

    Args:
        history: Identities remembered of each kind: of cancellations that wait, and of attempts that are settled.
    """

    def __init__(self, *, history: int = MAX_DELEGATION_HISTORY) -> None:
        self._history = history
        self._active: dict[Attempt, _Active] = {}
        self._nodes: dict[tuple[str, str], Attempt] = {}
        self._settled: set[Attempt] = set()
        self._cancelled: set[Attempt] = set()
        self._is_saturated = False
        self.is_active = True  # whether there is a host that could run anything

    def is_running(self, attempt: Attempt) -> bool:
        """Tell whether an attempt was started and has not ended."""
        return attempt in self._active

    def handle(self, event: DelegationEvent) -> list[DelegationEffect]:
        """Take one event; return what is to be done, in order. Never raises for any payload or order."""
        match event:
            case RequestCame(payload):
                return self._request(payload)
            case CancelCame(payload):
                return self._cancel(payload)
            case Progressed(attempt, update):
                return self._progress(attempt, update)
            case Ended(attempt, response):
                return self._end(attempt, response)
            case Reset():
                return self._reset()
            case _:
                assert_never(event)

    # Requests. ---------------------------------------------------------------------------------------------------

    def _request(self, payload: object) -> list[DelegationEffect]:
        match parse_request(payload):
            case None:
                return []
            case Legacy(request_id=request_id, error=error, echo=echo):
                return [Publish(_legacy(request_id, error, echo))]
            case Invalid() as invalid:
                return self._refuse_invalid(invalid)
            case Delegation() as delegation:
                return self._start(delegation)

    def _start(self, delegation: Delegation) -> list[DelegationEffect]:
        attempt = delegation.attempt
        if attempt in self._active or attempt in self._settled:
            return []
        if attempt in self._cancelled:
            self._cancelled.remove(attempt)
            return self._settle(answer(attempt, "cancelled"), attempt)
        if self._is_saturated:
            text = (
                f"The identity capacity of {self._history} attempts is used up: start no more until the host is anew."
            )
            return [Publish(answer(attempt, "unavailable_context", text))]
        if attempt.node in self._nodes:
            return self._settle(answer(attempt, "duplicate_node"), attempt)
        if not self.is_active:
            text = "No active extension context: the session has no host that could run it."
            return self._settle(answer(attempt, "unavailable_context", text), attempt)
        self._active[attempt] = _Active()
        self._nodes[attempt.node] = attempt
        return [Publish(DelegationStarted(**attempt._asdict())), Launch(delegation)]

    def _refuse_invalid(self, invalid: Invalid) -> list[DelegationEffect]:
        response = DelegationResponse(
            request_id=invalid.request_id,
            owner_run_id=invalid.owner_run_id,
            node_id=invalid.node_id,
            status="invalid_request",
            error=invalid.error,
        )
        attempt = invalid.attempt
        if attempt is None:
            return [Publish(response)]
        if attempt in self._active or attempt in self._settled:
            return []
        # A full history takes no new identity, not even of a request that is none.
        return [Publish(response)] if self._is_saturated else self._settle(response, attempt)

    # What runs. --------------------------------------------------------------------------------------------------

    def _cancel(self, payload: object) -> list[DelegationEffect]:
        attempt = parse_cancel(payload)
        if attempt is None:
            return []
        active = self._active.get(attempt)
        if active is None:
            if len(self._cancelled) < self._history:
                self._cancelled.add(attempt)
                self._look_at_bound()
            return []
        if active.is_cancelled:
            return []
        active.is_cancelled = True
        return [Abort(attempt)]

    def _progress(self, attempt: Attempt, update: DelegationUpdate) -> list[DelegationEffect]:
        active = self._active.get(attempt)
        if active is None or active.is_cancelled:
            return []
        visible = msgspec.structs.replace(update, duration_ms=None)
        if active.shown == visible:
            return []
        active.shown = visible
        return [Publish(update)]

    def _end(self, attempt: Attempt, response: DelegationResponse) -> list[DelegationEffect]:
        active = self._active.pop(attempt, None)
        if active is None:
            return []
        self._nodes.pop(attempt.node, None)
        if active.is_cancelled:
            is_ours = response.status in (
                "interrupted",
                "completed",
            )  # the stop's own words are no error of the child's
            error = None if is_ours else response.error
            response = msgspec.structs.replace(response, status="cancelled", error=error, result=None)
        return self._settle(response, attempt)

    def _settle(self, response: DelegationResponse, attempt: Attempt) -> list[DelegationEffect]:
        self._settled.add(attempt)
        self._look_at_bound()
        return [Publish(response)]

    def _look_at_bound(self) -> None:
        if max(len(self._settled), len(self._cancelled)) >= self._history:
            self._is_saturated = True

    def _reset(self) -> list[DelegationEffect]:
        running = list(self._active)
        self._active.clear()
        self._nodes.clear()
        self._settled.clear()
        self._cancelled.clear()
        self._is_saturated = False
        return [Abort(attempt) for attempt in running]


def answer(attempt: Attempt, status: str, error: str | None = None, **fields: Any) -> DelegationResponse:
    """Return a response for an attempt."""
    return DelegationResponse(**attempt._asdict(), status=status, error=error, **fields)


def _legacy(request_id: str, error: str, echo: dict[str, str]) -> DelegationResponse:
    return DelegationResponse(request_id=request_id, messages=[], is_error=True, error_text=error, **echo)  # type: ignore[arg-type]  # names of text fields
