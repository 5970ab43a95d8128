"""A peer that does not keep up: what waits, what is dropped, and that nobody else pays for it."""

from __future__ import annotations

import pytest

from broker.effects import Disconnect
from broker.events import LeaveRequested
from broker.mailbox import DROPPABLE_ROOM_BYTES, Mailbox
from broker.routing import MAX_PARKED_BYTES
from pisub.protocol import codec
from pisub.protocol.delivery import Kind, Priority, Stamp
from pisub.protocol.limits import MAX_BODY_BYTES, MAX_PEER_QUEUE_BYTES
from pisub.protocol.session import Claim, FindRole, GoneReason, HeldRole, Status, Subscribe, Terminated, Watch
from tests.support.broker_world import World

BIG = b"x" * 60_000


@pytest.fixture
def world() -> World:
    return World()


def test_what_a_full_pipe_refused_waits_and_goes_out_in_order(world: World) -> None:
    a, b = world.join("a"), world.join("b")
    b.is_blocked = True
    for number in range(5):
        a.tell("b", bytes([number]))
    assert b.take() == []
    assert a.control(Status()).counters["suspensions"] == 1
    b.is_blocked = False
    a.tell("b", b"last")
    world.retry()
    assert [each.body for each in b.take()] == [b"\0", b"\1", b"\2", b"\3", b"\4", b"last"]
    assert (world.core.suspended_routes(), world.core.state.queued_bytes) == ([], 0)


def test_a_suspended_peer_gets_no_droppable_messages_and_is_told_how_many(world: World) -> None:
    a, b = world.join("a"), world.join("b")
    b.control(Subscribe(topic="t"))
    b.is_blocked = True
    for _ in range(DROPPABLE_ROOM_BYTES // MAX_BODY_BYTES):
        a.tell("b", b"x" * MAX_BODY_BYTES)
    for _ in range(1000):
        a.publish("t", priority=Priority.DROPPABLE)
    a.publish("t", b"terminal", priority=Priority.TERMINAL)
    assert len(world.core.state.peers["b"].mailbox) == DROPPABLE_ROOM_BYTES // MAX_BODY_BYTES + 1
    b.is_blocked = False
    world.retry()
    first, *_, terminal = b.take()
    assert (first.stamp.dropped, terminal.stamp.dropped, terminal.body) == (1000, 0, b"terminal")
    a.publish("t", priority=Priority.DROPPABLE)
    assert [each.stamp.dropped for each in b.take()] == [0]
    assert world.counter("dropped") == 1000


def test_a_reader_that_only_paused_loses_no_droppable_message(world: World) -> None:
    a, b = world.join("a"), world.join("b")
    b.is_blocked = True
    for number in range(200):
        a.tell("b", bytes([number]), priority=Priority.DROPPABLE)
    b.is_blocked = False
    world.retry()
    assert [(each.body, each.stamp.dropped) for each in b.take()] == [(bytes([number]), 0) for number in range(200)]


def test_a_gap_with_nothing_queued_behind_it_is_told_by_the_next_message(world: World) -> None:
    a, b = world.join("a"), world.join("b")
    b.lose_connection()
    a.tell("b", priority=Priority.DROPPABLE)
    again = world.connect(pid=b.process.pid).hello("b")
    again.take()
    a.tell("b", b"next", priority=Priority.DROPPABLE)
    a.tell("b", b"after", priority=Priority.DROPPABLE)
    assert [(each.body, each.stamp.dropped) for each in again.take()] == [(b"next", 1), (b"after", 0)]


def test_control_messages_go_before_what_waits(world: World) -> None:
    a, b = world.join("a"), world.join("b")
    b.is_blocked = True
    a.tell("b", b"first")
    a.tell("b", b"urgent", priority=Priority.CONTROL)
    b.is_blocked = False
    world.retry()
    assert [each.body for each in b.take()] == [b"urgent", b"first"]


def test_a_slow_peer_costs_the_others_nothing(world: World) -> None:
    a, slow, fast = world.join("a"), world.join("slow"), world.join("fast")
    for each in (slow, fast):
        each.control(Subscribe(topic="t"))
    slow.is_blocked = True
    for number in range(100):
        a.publish("t", bytes([number]), priority=Priority.DROPPABLE)
    assert [each.body for each in fast.take()] == [bytes([number]) for number in range(100)]


def test_at_the_bound_the_connection_goes_but_roles_name_watches_and_what_is_essential_stay(world: World) -> None:
    a, b = world.join("a"), world.join("b", pid=20)
    generation = b.control(Claim(role="host")).generation
    b.control(Subscribe(topic="t"))
    b.control(Watch(address="a"))
    b.is_blocked = True
    a.tell("b", b"terminal", priority=Priority.TERMINAL)
    while Disconnect(b.route) not in world.effects:
        a.tell("b", BIG)
        assert world.core.state.queued_bytes <= MAX_PEER_QUEUE_BYTES + len(BIG) + 500
    b.lose_connection()
    world.advance(3600)
    assert a.control(FindRole(role="host")).address == "b"
    again = world.connect(pid=20)
    again.hello("b", roles=(HeldRole(role="host", generation=generation),), watches=("a",))
    world.retry()
    welcome, terminal = again.take()
    assert (welcome.message.resync, welcome.message.roles[0].generation) == (True, generation)
    assert terminal.brief == (Kind.TELL, "a", b"terminal")
    a.die()
    assert again.briefs() == [(Kind.TELL, "", Terminated(address="a", reason=GoneReason.EXITED, incarnation=1))]


def test_a_broker_that_leaves_tells_everybody_also_where_the_word_is_too_much_for_one(world: World) -> None:
    a, b, c = world.join("a"), world.join("b"), world.join("c")
    b.is_blocked = True
    while world.core.state.peers["b"].mailbox.queued_bytes + len(BIG) + 500 < MAX_PEER_QUEUE_BYTES:
        a.tell("b", BIG)
    world.core.state.peers["b"].mailbox.limit_bytes = world.core.state.peers["b"].mailbox.queued_bytes
    world.handle(LeaveRequested("told to"))
    assert Disconnect(b.route) in world.effects
    assert [each.header.kind for each in (*a.take(), *c.take())] == [Kind.LEAVING] * 2


def test_a_slow_peer_whose_process_cannot_be_watched_ends_as_slow(world: World) -> None:
    a = world.join("a")
    b = world.connect(pid=20, process=None).hello("b")
    b.take()
    a.control(Watch(address="b"))
    b.is_blocked = True
    for _ in range(200):
        a.tell("b", BIG)
    world.advance(3)
    assert a.briefs() == [(Kind.TELL, "", Terminated(address="b", reason=GoneReason.SLOW, incarnation=1))]


def test_over_the_total_bound_the_largest_debtor_is_disconnected() -> None:
    world = World(total_queue_bytes=1_000_000)
    a, b, c = world.join("a"), world.join("b"), world.join("c")
    b.is_blocked = c.is_blocked = True
    a.tell("c", b"small")
    for _ in range(20):
        a.tell("b", BIG)
    assert Disconnect(b.route) in world.effects
    assert Disconnect(c.route) not in world.effects
    assert world.core.state.queued_bytes <= 1_000_000


def test_essential_messages_too_are_bounded_while_nobody_reads(world: World) -> None:
    a, b = world.join("a"), world.join("b")
    b.is_blocked = True
    for _ in range(200):
        a.tell("b", BIG, priority=Priority.TERMINAL)
        assert world.core.state.queued_bytes <= MAX_PEER_QUEUE_BYTES + len(BIG) + 500
    assert world.counter("dropped_at_bound") > 0


def test_a_message_to_a_connection_that_just_broke_waits_for_its_return(world: World) -> None:
    a, b = world.join("a"), world.join("b", pid=20)
    b.is_gone = True
    a.tell("b", b"1")
    a.tell("b", b"2")
    again = world.connect(pid=20).hello("b")
    world.retry()
    assert [each.body for each in again.take()[1:]] == [b"1", b"2"]


def test_a_peer_that_ends_takes_its_queue_with_it(world: World) -> None:
    a, b = world.join("a"), world.join("b")
    b.is_blocked = True
    a.tell("b", BIG)
    b.die()
    assert world.core.state.queued_bytes == 0
    assert world.core.suspended_routes() == []


def test_a_mailbox_counts_a_gap_on_top_of_one_that_a_stamp_already_told() -> None:
    mailbox = Mailbox()
    mailbox.put(codec.pack_stamp(Stamp(sender="a", dropped=2)), b"f", kind=Kind.TELL, priority=Priority.NORMAL)
    mailbox.drop(3)
    [(stamp, frame)] = mailbox.peek(5)
    assert (codec.unpack_stamp(stamp), frame) == (Stamp(sender="a", dropped=5), b"f")
    mailbox.pop(1)
    assert (mailbox.peek(5), mailbox.gap, mailbox.dropped, mailbox.queued_bytes) == ([], 0, 3, 0)


# A broker that has just begun ------------------------------------------------------------------------------------


def test_a_fresh_broker_parks_calls_to_names_that_it_does_not_know_yet() -> None:
    world = World(settle_s=1.0)
    a = world.join("a")
    a.call("b", b"1")
    a.call("role:host", b"2", scope="s")
    a.tell("b", b"3")
    assert a.take() == []
    b = world.join("b")
    assert [each.body for each in b.take()] == [b"1", b"3"]
    b.control(Claim(role="host", scope="s"))
    assert [each.body for each in b.take()] == [b"2"]
    assert [each.header.kind for each in a.take()] == [Kind.ROUTED]


def test_what_is_parked_fails_when_the_broker_has_settled_and_nobody_came() -> None:
    world = World(settle_s=1.0)
    a = world.join("a")
    a.call("b")
    a.call("c@5")
    a.call("d", ttl_ms=300)
    world.advance(1.5)
    assert [each.message.code for each in a.take()] == ["not_delivered", "outcome_unknown", "not_delivered"]


def test_a_fresh_broker_knows_at_once_that_another_life_is_there() -> None:
    world = World(settle_s=1.0)
    a, _ = world.join("a"), world.join("b", incarnation=2)
    a.call("b@1")
    assert [each.message.code for each in a.take()] == ["outcome_unknown"]


def test_a_fresh_broker_answers_a_watch_on_a_name_it_does_not_know_when_it_has_settled() -> None:
    world = World(settle_s=1.0)
    a = world.join("a", watches=("b", "c"))
    world.join("b")
    assert a.take() == []
    world.advance(1.5)
    assert a.briefs() == [(Kind.TELL, "", Terminated(address="c", reason=GoneReason.UNKNOWN))]


def test_parking_is_bounded() -> None:
    world = World(settle_s=1.0)
    a = world.join("a")
    for _ in range(MAX_PARKED_BYTES // len(BIG) + 5):
        a.call("b", BIG)
    assert {each.message.code for each in a.take()} == {"not_delivered"}
