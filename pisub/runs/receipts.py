"""What the sender of a steering message is told: the state of each target, and of the whole request. Pure."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from pisub.protocol.base import Part, Record
from pisub.runs.steering import AckState


class TargetState(enum.StrEnum):
    """Where a request stands at one child (contract, runs 4.3)."""

    SCHEDULED = "scheduled"  # the run has not begun
    PENDING = "pending"  # no word from the child yet
    ROUTED = "routed"  # the runner has it, the agent has not
    QUEUED = "queued"
    DELIVERED = "delivered"
    LATE = "late"  # delivered, but after its sender had given it up
    FAILED = "failed"
    RECOVERED = "recovered"  # another run was started with it


class RequestState(enum.StrEnum):
    """Where a request stands at all its children together."""

    DELIVERED = "delivered"
    SCHEDULED = "scheduled"
    RECOVERED = "recovered"
    FAILED = "failed"
    PARTIAL = "partial"
    PENDING = "pending"


class DeliveryStatus(enum.StrEnum):
    """The receipt in one word."""

    DELIVERED = "delivered"
    QUEUED = "queued"


class Target(Part, frozen=True, kw_only=True):
    """One child of a request."""

    index: int
    state: TargetState
    delivered_at: int | None = None
    late_delivered_at: int | None = None
    reason: str | None = None
    replacement_run_id: str | None = None


class Receipt(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What became of a steering request so far.

    Attributes:
        state: ``pending`` is no error: the agent has not answered yet, and may still.
        delivery_status: ``delivered`` only when every child has it.
        replacement_run_id: The run that was started with the message, where the child was revived for it.
    """

    request_id: str
    state: RequestState
    delivery_status: DeliveryStatus
    source_run_id: str
    replacement_run_id: str | None = None
    targets: tuple[Target, ...] = ()

    @property
    def is_failure(self) -> bool:
        """Whether a child will certainly not get it."""
        return self.state in (RequestState.FAILED, RequestState.PARTIAL)


class Ack(Part, frozen=True, kw_only=True):
    """One word of a child about a request, in the order of its file: time, then queued, delivered, failed."""

    state: AckState
    at: int
    text: str = ""


class Recovery(Part, frozen=True, kw_only=True):
    """What is known of a revival for a request: since when it was given up, and what was started instead."""

    committed_at: int
    replacement_run_id: str | None = None


def target_of(
    index: int,
    acks: Sequence[Ack],
    *,
    has_begun: bool,
    is_over: bool,
    is_taken: bool = False,
    recovery: Recovery | None = None,
) -> Target:
    """Return where a request stands at a child.

    Args:
        index: Of the child.
        acks: Its acknowledgements, ordered.
        has_begun: Whether the run has.
        is_over: Whether its inbox is closed: what has no answer gets none.
        is_taken: Whether the runner took the request from the inbox.
        recovery: Where the child was given up for it.
    """
    delivered = next((ack for ack in acks if ack.state is AckState.DELIVERED), None)
    failed = next((ack for ack in acks if ack.state is AckState.FAILED), None)
    is_late = recovery is not None and delivered is not None and delivered.at > recovery.committed_at
    if recovery is not None and recovery.replacement_run_id is not None:
        return Target(
            index=index,
            state=TargetState.RECOVERED,
            late_delivered_at=delivered.at if delivered is not None and is_late else None,
            replacement_run_id=recovery.replacement_run_id,
        )
    if delivered is not None:
        if is_late:
            return Target(index=index, state=TargetState.LATE, late_delivered_at=delivered.at)
        return Target(index=index, state=TargetState.DELIVERED, delivered_at=delivered.at)
    if failed is not None:
        return Target(index=index, state=TargetState.FAILED, reason=failed.text)
    if is_over:
        return Target(index=index, state=TargetState.FAILED, reason="The run ended before it answered.")
    if acks:
        return Target(index=index, state=TargetState.QUEUED)
    if not has_begun:
        return Target(index=index, state=TargetState.SCHEDULED)
    return Target(index=index, state=TargetState.ROUTED if is_taken else TargetState.PENDING)


def request_state(targets: Sequence[TargetState]) -> RequestState:
    """Return the state of a request from the states at its targets."""
    states = set(targets)
    for whole, state in (
        (TargetState.DELIVERED, RequestState.DELIVERED),
        (TargetState.SCHEDULED, RequestState.SCHEDULED),
        (TargetState.RECOVERED, RequestState.RECOVERED),
    ):
        if states == {whole}:
            return state
    lost = {TargetState.FAILED, TargetState.LATE}
    if states and states <= lost:
        return RequestState.FAILED
    return RequestState.PARTIAL if states & lost else RequestState.PENDING


def delivery_status(targets: Sequence[TargetState]) -> DeliveryStatus:
    """Return the one word: delivered only when every target is delivered or recovered."""
    is_done = bool(targets) and set(targets) <= {TargetState.DELIVERED, TargetState.RECOVERED}
    return DeliveryStatus.DELIVERED if is_done else DeliveryStatus.QUEUED


def receipt_of(run_id: str, request_id: str, targets: Sequence[Target]) -> Receipt:
    """Return the receipt of a request with these targets."""
    states = [target.state for target in targets]
    return Receipt(
        request_id=request_id,
        state=request_state(states),
        delivery_status=delivery_status(states),
        source_run_id=run_id,
        replacement_run_id=next((each.replacement_run_id for each in targets if each.replacement_run_id), None),
        targets=tuple(targets),
    )
