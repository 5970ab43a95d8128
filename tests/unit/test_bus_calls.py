"""The table of open calls: ids, deadlines, bindings."""

import pytest

from pisub.client.bus_calls import PendingCall, PendingCalls
from pisub.errors import RefusedError
from pisub.protocol.delivery import Header, Kind


def call(message_id: int, *, deadline: float | None = None, to: str = "role:host") -> PendingCall:
    return PendingCall(Header(kind=Kind.CALL, message_id=message_id, to=to), b"", None, deadline)


def test_a_call_is_closed_once() -> None:
    calls = PendingCalls()
    first = call(1)
    calls.open(first)
    assert calls.close(1) is first
    assert not first.is_open
    assert calls.close(1) is None


def test_calls_expire_in_the_order_of_their_deadlines_and_only_when_they_are_due() -> None:
    calls = PendingCalls()
    for message_id, deadline in ((1, 3.0), (2, 1.0), (3, None), (4, 2.0)):
        calls.open(call(message_id, deadline=deadline))
    assert calls.next_deadline() == 1.0
    assert [each.header.message_id for each in calls.expire(2.0)] == [2, 4]
    assert calls.next_deadline() == 3.0
    assert len(calls) == 2


def test_the_deadline_of_an_ended_call_ends_nothing() -> None:
    calls = PendingCalls()
    calls.open(call(1, deadline=1.0))
    calls.close(1)
    assert calls.expire(5.0) == []
    assert calls.next_deadline() is None


def test_deadlines_of_ended_calls_do_not_pile_up() -> None:
    calls = PendingCalls()
    for message_id in range(1, 10_001):
        calls.open(call(message_id, deadline=60.0))
        calls.close(message_id)
    assert len(calls._deadlines) < 2_000


def test_more_open_calls_than_the_bound_are_refused() -> None:
    calls = PendingCalls(max_open=1)
    calls.open(call(1))
    with pytest.raises(RefusedError) as refused:
        calls.open(call(2))
    assert refused.value.code == "too_many_calls"
    assert len(calls) == 1


def test_the_first_binding_counts() -> None:
    calls = PendingCalls()
    first = call(1)
    calls.open(first)
    calls.bind(1, "host@1")
    calls.bind(1, "other@2")
    calls.bind(99, "nobody@3")
    assert calls.target_of(first) == "host@1"


def test_a_call_to_an_address_is_bound_to_the_life_that_answered_last() -> None:
    calls = PendingCalls()
    first = call(1, to="run:1")
    calls.open(first)
    assert calls.target_of(first) == ""
    calls.note_life("run:1", 7)
    assert calls.target_of(first) == "run:1@7"


def test_closing_all_returns_them_in_order() -> None:
    calls = PendingCalls()
    for message_id in (1, 2, 3):
        calls.open(call(message_id, deadline=1.0))
    assert [each.header.message_id for each in calls.close_all()] == [1, 2, 3]
    assert (len(calls), calls.next_deadline()) == (0, None)
