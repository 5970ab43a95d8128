"""What a sender is told: target states from acknowledgements, request states and receipts from target states."""

import pytest

from pisub.runs.receipts import (
    Ack,
    DeliveryStatus,
    Recovery,
    RequestState,
    Target,
    TargetState,
    delivery_status,
    receipt_of,
    request_state,
    target_of,
)
from pisub.runs.steering import AckState

T = TargetState
QUEUED, DELIVERED, FAILED = (Ack(state=state, at=10, text=state.value) for state in AckState)


@pytest.mark.parametrize(
    ("targets", "state", "word"),
    [
        ((T.DELIVERED,), RequestState.DELIVERED, DeliveryStatus.DELIVERED),
        ((T.DELIVERED, T.DELIVERED), RequestState.DELIVERED, DeliveryStatus.DELIVERED),
        ((T.SCHEDULED, T.SCHEDULED), RequestState.SCHEDULED, DeliveryStatus.QUEUED),
        ((T.RECOVERED,), RequestState.RECOVERED, DeliveryStatus.DELIVERED),
        ((T.FAILED,), RequestState.FAILED, DeliveryStatus.QUEUED),
        ((T.LATE,), RequestState.FAILED, DeliveryStatus.QUEUED),
        ((T.FAILED, T.LATE), RequestState.FAILED, DeliveryStatus.QUEUED),
        ((T.FAILED, T.DELIVERED), RequestState.PARTIAL, DeliveryStatus.QUEUED),
        ((T.LATE, T.PENDING), RequestState.PARTIAL, DeliveryStatus.QUEUED),
        ((T.QUEUED,), RequestState.PENDING, DeliveryStatus.QUEUED),
        ((T.ROUTED,), RequestState.PENDING, DeliveryStatus.QUEUED),
        ((T.PENDING, T.DELIVERED), RequestState.PENDING, DeliveryStatus.QUEUED),
        ((T.SCHEDULED, T.DELIVERED), RequestState.PENDING, DeliveryStatus.QUEUED),
        ((T.RECOVERED, T.DELIVERED), RequestState.PENDING, DeliveryStatus.DELIVERED),
    ],
)
def test_a_request_s_state_follows_from_its_targets(
    targets: tuple[TargetState, ...], state: RequestState, word: DeliveryStatus
) -> None:
    assert (request_state(targets), delivery_status(targets)) == (state, word)


@pytest.mark.parametrize(
    ("acks", "has_begun", "is_over", "is_taken", "expected"),
    [
        ((), False, False, False, Target(index=0, state=T.SCHEDULED)),
        ((), True, False, False, Target(index=0, state=T.PENDING)),
        ((), True, False, True, Target(index=0, state=T.ROUTED)),
        ((QUEUED,), True, False, True, Target(index=0, state=T.QUEUED)),
        ((QUEUED, DELIVERED), True, False, True, Target(index=0, state=T.DELIVERED, delivered_at=10)),
        ((DELIVERED,), True, True, True, Target(index=0, state=T.DELIVERED, delivered_at=10)),
        ((QUEUED, FAILED), True, True, True, Target(index=0, state=T.FAILED, reason="failed")),
        # What the agent took, it has, whatever somebody wrote who finished the record of a killed runner.
        ((QUEUED, FAILED, DELIVERED), True, True, True, Target(index=0, state=T.DELIVERED, delivered_at=10)),
        ((), True, True, True, Target(index=0, state=T.FAILED, reason="The run ended before it answered.")),
        ((QUEUED,), True, True, True, Target(index=0, state=T.FAILED, reason="The run ended before it answered.")),
    ],
)
def test_a_target_s_state_follows_from_its_acknowledgements(
    acks: tuple[Ack, ...], has_begun: bool, is_over: bool, is_taken: bool, expected: Target
) -> None:
    assert target_of(0, acks, has_begun=has_begun, is_over=is_over, is_taken=is_taken) == expected


@pytest.mark.parametrize(
    ("acks", "recovery", "expected"),
    [
        # Delivered before it was given up, or at that moment: delivered.
        ((DELIVERED,), Recovery(committed_at=10), Target(index=0, state=T.DELIVERED, delivered_at=10)),
        ((DELIVERED,), Recovery(committed_at=9), Target(index=0, state=T.LATE, late_delivered_at=10)),
        (
            (FAILED,),
            Recovery(committed_at=9, replacement_run_id="new"),
            Target(index=0, state=T.RECOVERED, replacement_run_id="new"),
        ),
        # Late after a revival: recovered all the same.
        (
            (DELIVERED,),
            Recovery(committed_at=9, replacement_run_id="new"),
            Target(index=0, state=T.RECOVERED, late_delivered_at=10, replacement_run_id="new"),
        ),
    ],
)
def test_a_word_that_comes_after_the_message_was_given_up_is_late(
    acks: tuple[Ack, ...], recovery: Recovery, expected: Target
) -> None:
    assert target_of(0, acks, has_begun=True, is_over=True, recovery=recovery) == expected


def test_a_receipt_names_the_run_that_replaced_the_source() -> None:
    target = Target(index=0, state=T.RECOVERED, replacement_run_id="new")
    receipt = receipt_of("old", "r", [target])
    assert (receipt.source_run_id, receipt.replacement_run_id, receipt.is_failure) == ("old", "new", False)
