"""Whom the broker tries again, and when: often while it takes something, seldom while not, a few in one turn."""

from __future__ import annotations

import math

from broker.retries import LIVELY_A_TURN, LIVELY_PAUSE_S, LIVELY_S, MAX_PAUSE_S, MIN_PAUSE_S, Retries


def test_a_peer_whose_pipe_was_just_full_is_tried_at_every_turn() -> None:
    retries = Retries()
    retries.add(b"a", 1.0)
    tried = []
    for turn in range(4):
        tried.append(retries.due(1.0 + turn / 10_000))
        retries.refused(b"a", 1.0 + turn / 10_000)
    assert tried == [[b"a"]] * 4


def test_one_turn_tries_a_few_and_the_next_turn_the_next_few() -> None:
    retries = Retries()
    routes = [bytes([number]) for number in range(LIVELY_A_TURN + 2)]
    for route in routes:
        retries.add(route, 1.0)
    first = retries.due(1.0)
    assert retries.next_due == 1.0, "there are more of them"
    for route in first:
        retries.refused(route, 1.0)
    assert (first, retries.due(1.0)[:2]) == (routes[:LIVELY_A_TURN], routes[LIVELY_A_TURN:])


def test_one_that_takes_nothing_is_tried_ever_more_seldom() -> None:
    retries = Retries()
    retries.add(b"a", 1.0)
    now, waits = 1.0 + LIVELY_S, []
    for _ in range(6):
        assert retries.due(now) == [b"a"]
        retries.refused(b"a", now)
        assert retries.due(now) == []
        waits.append(round(retries.next_due - now, 6))
        now = retries.next_due
    assert waits == [MIN_PAUSE_S, 2 * MIN_PAUSE_S, 4 * MIN_PAUSE_S, *[MAX_PAUSE_S] * 3]


def test_one_that_takes_something_is_lively_again() -> None:
    retries = Retries()
    retries.add(b"a", 1.0)
    retries.refused(b"a", 2.0)
    assert retries.due(2.0) == []
    retries.took(b"a", 3.0, has_room=False)
    assert retries.due(3.0) == [b"a"]


def test_where_there_was_room_for_all_that_was_tried_there_is_no_wait() -> None:
    retries = Retries()
    retries.add(b"a", 1.0)
    assert retries.next_due == 1.0 + LIVELY_PAUSE_S
    retries.took(b"a", 1.0, has_room=True)
    assert retries.next_due == 1.0


def test_the_clock_alone_brings_nobody_back_who_was_forgotten() -> None:
    retries = Retries()
    for route in (b"a", b"b"):
        retries.add(route, 1.0)
    retries.refused(b"a", 2.0)
    for route in (b"a", b"b", b"c"):
        retries.forget(route)
    assert (len(retries), retries.due(9.0), retries.next_due) == (0, [], math.inf)


def test_a_full_pipe_that_is_known_changes_nothing() -> None:
    retries = Retries()
    retries.add(b"a", 1.0)
    retries.refused(b"a", 2.0)
    retries.add(b"a", 2.0)
    assert (len(retries), retries.due(2.0)) == (1, [])


def test_a_loop_that_woke_without_a_message_tries_those_too_that_pause() -> None:
    retries = Retries()
    routes = [bytes([number]) for number in range(LIVELY_A_TURN + 2)]
    for route in routes:
        retries.add(route, 1.0)
        retries.refused(route, 2.0)
    due = retries.next_due
    assert retries.due(2.0) == []
    first = retries.due(2.0, is_woken=True)
    for route in first:
        retries.refused(route, 2.0)
    assert (first, retries.due(2.0, is_woken=True)[:2]) == (routes[:LIVELY_A_TURN], routes[LIVELY_A_TURN:])
    assert retries.next_due == due, "to be tried early makes no pause longer"
