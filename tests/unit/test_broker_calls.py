"""What becomes of a call, a reply, a tell and a publication."""

from __future__ import annotations

import pytest

from pisub.protocol import codec
from pisub.protocol.delivery import Header, Kind, Priority
from pisub.protocol.session import Claim, Done, Failure, Release, Routed, Subscribe, Unsubscribe
from tests.support.broker_world import World


@pytest.fixture
def world() -> World:
    return World()


def failure(code: str, seen: object) -> bool:
    return isinstance(seen, Failure) and seen.code == code


def test_a_call_to_an_address_is_forwarded_with_the_callers_stamp_and_its_reply_comes_back(world: World) -> None:
    a, b = world.join("a", incarnation=7), world.join("b")
    number = a.call("b", b"question")
    [call] = b.take()
    assert (call.stamp.sender, call.stamp.incarnation, call.header.message_id, call.body) == (
        "a",
        7,
        number,
        b"question",
    )
    b.reply("a", number, b"answer")
    [reply] = a.take()
    assert (reply.stamp.sender, reply.header.correlation_id, reply.body) == ("b", number, b"answer")


def test_a_call_to_a_role_tells_the_caller_whom_it_is_bound_to(world: World) -> None:
    a, b = world.join("a"), world.join("b", incarnation=9)
    b.control(Claim(role="host", scope="s"))
    number = a.call("role:host", scope="s")
    [routed] = a.take()
    assert (routed.header.kind, routed.header.correlation_id, routed.header.to) == (Kind.ROUTED, number, "b@9")
    assert [each.brief for each in b.take()] == [(Kind.CALL, "a", b"?")]


def test_the_calls_of_one_batch_are_told_of_together_once_for_each_caller_and_callee(world: World) -> None:
    a, b, c = world.join("a"), world.join("b", incarnation=9), world.join("c")
    b.control(Claim(role="host"))
    frames = [(each.route, call_frame(number)) for number, each in enumerate((a, c, a, a), start=5)]
    world.apply(world.core.handle_batch(frames, world.now))
    for caller, numbers in ((a, (5, 7, 8)), (c, (6,))):
        [routed] = caller.take()
        others = () if not routed.body else codec.decode(routed.body, Routed).message_ids
        assert (routed.header.kind, routed.header.to) == (Kind.ROUTED, "b@9")
        assert (routed.header.correlation_id, *others) == numbers
    assert [each.header.message_id for each in b.take()] == [5, 6, 7, 8]


def test_a_caller_that_left_in_the_same_batch_is_told_of_no_call(world: World) -> None:
    a, b = world.join("a"), world.join("b")
    b.control(Claim(role="host"))
    goodbye = codec.pack(Header(kind=Kind.GOODBYE))
    world.apply(world.core.handle_batch([(a.route, call_frame(5)), (a.route, goodbye)], world.now))
    assert (a.take(), world.core.state.queued_bytes) == ([], 0)
    assert [each.header.message_id for each in b.take()] == [5]


def call_frame(number: int) -> bytes:
    return codec.pack(Header(kind=Kind.CALL, message_id=number, to="role:host"), b"?")


def test_a_role_in_another_scope_is_another_role(world: World) -> None:
    a, b = world.join("a"), world.join("b")
    b.control(Claim(role="host", scope="s"))
    a.call("role:host", scope="t")
    assert failure("not_delivered", a.take()[0].message)


def test_a_call_to_nobody_fails_at_once_as_not_delivered(world: World) -> None:
    a = world.join("a")
    number = a.call("nobody")
    [answer] = a.take()
    assert answer.header.correlation_id == number
    assert failure("not_delivered", answer.message)


def test_a_call_bound_to_a_life_that_is_over_has_an_unknown_outcome(world: World) -> None:
    a, _ = world.join("a"), world.join("b", incarnation=2)
    a.call("b@1")
    assert failure("outcome_unknown", a.take()[0].message)


def test_a_resend_goes_to_the_bound_callee_though_the_role_has_moved(world: World) -> None:
    a, b, c = world.join("a"), world.join("b"), world.join("c")
    b.control(Claim(role="host"))
    number = a.call("role:host")
    b.take()
    b.control(Release(role="host"))
    c.control(Claim(role="host"))
    a.call("role:host", message_id=number)
    assert [each.brief for each in b.take()] == [(Kind.CALL, "a", b"?")]
    assert c.take() == []


def test_a_callee_that_dies_leaves_its_open_calls_with_an_unknown_outcome(world: World) -> None:
    a, b = world.join("a"), world.join("b")
    number = a.call("b")
    b.die()
    [answer] = a.take()
    assert answer.header.correlation_id == number
    assert failure("outcome_unknown", answer.message)


def test_only_the_callee_can_answer_and_only_once(world: World) -> None:
    a, b, forger = world.join("a"), world.join("b"), world.join("forger")
    number = a.call("b")
    forger.reply("a", number, b"forged")
    forger.send(Kind.FAIL, Failure(code="x", message=""), to="a", correlation_id=number)
    assert a.take() == []
    b.reply("a", number)
    b.reply("a", number)
    assert [each.brief for each in a.take()] == [(Kind.REPLY, "b", b"=")]
    assert world.counter("unmatched_replies") == 3


def test_a_callees_failure_is_forwarded_as_it_is(world: World) -> None:
    a, b = world.join("a"), world.join("b")
    number = a.call("b")
    b.send(Kind.FAIL, Failure(code="own_code", message="no"), to="a@1", correlation_id=number)
    [seen] = a.take()
    assert (seen.header.kind, seen.stamp.sender, seen.message) == (
        Kind.FAIL,
        "b",
        Failure(code="own_code", message="no"),
    )


def test_a_calls_time_ends_with_call_timeout_and_a_late_reply_is_dropped(world: World) -> None:
    a, b = world.join("a"), world.join("b")
    number = a.call("b", ttl_ms=1000)
    world.advance(0.9)
    assert a.take() == []
    world.advance(0.4)
    assert failure("call_timeout", a.take()[0].message)
    b.reply("a", number)
    assert a.take() == []


def test_a_call_without_a_time_stays_open(world: World) -> None:
    a, b = world.join("a"), world.join("b")
    number = a.call("b")
    world.advance(100_000)
    b.reply("a", number)
    assert [each.brief for each in a.take()] == [(Kind.REPLY, "b", b"=")]


def test_a_reply_with_a_topic_reaches_its_observers_too(world: World) -> None:
    a, b, observer = world.join("a"), world.join("b"), world.join("observer")
    observer.control(Subscribe(topic="rpc:reply:", is_prefix=True, scope="s"))
    number = a.call("b")
    b.reply("a", number, topic="rpc:reply:1", scope="s")
    assert [each.brief for each in a.take()] == [(Kind.REPLY, "b", b"=")]
    assert [each.brief for each in observer.take()] == [(Kind.REPLY, "b", b"=")]


def test_a_tell_needs_no_answer_and_one_to_nobody_is_counted(world: World) -> None:
    a, b = world.join("a"), world.join("b")
    a.tell("b")
    a.tell("b@1", b"bound")
    a.tell("b@2", b"another life")
    a.tell("nobody")
    a.send(Kind.DONE, b"", to="b")
    assert [each.brief for each in b.take()] == [
        (Kind.TELL, "a", b"!"),
        (Kind.TELL, "a", b"bound"),
        (Kind.DONE, "a", b""),
    ]
    assert a.take() == []
    assert world.counter("undeliverable") == 2


def test_a_publication_reaches_exact_and_prefix_subscribers_of_its_scope_once_each(world: World) -> None:
    a, exact, prefix, other, both = (world.join(name) for name in ("a", "exact", "prefix", "other", "both"))
    exact.control(Subscribe(topic="run:1", scope="s"))
    prefix.control(Subscribe(topic="run:", is_prefix=True))
    other.control(Subscribe(topic="run:1", scope="t"))
    both.control(Subscribe(topic="run:1"))
    both.control(Subscribe(topic="run", is_prefix=True, scope="s"))
    a.publish("run:1", scope="s")
    assert [len(each.take()) for each in (a, exact, prefix, other, both)] == [0, 1, 1, 0, 1]


def test_a_publication_with_an_address_reaches_it_once_also_as_a_subscriber(world: World) -> None:
    a, b, c = world.join("a"), world.join("b"), world.join("c")
    c.control(Subscribe(topic="t"))
    a.publish("t", to="b")
    a.publish("t", to="c")
    assert [len(each.take()) for each in (a, b, c)] == [0, 1, 2]


def test_a_publisher_hears_itself_only_as_a_subscriber(world: World) -> None:
    a = world.join("a")
    a.publish("t")
    a.control(Subscribe(topic="t"))
    a.publish("t")
    assert [each.brief for each in a.take()] == [(Kind.PUBLISH, "a", b"!")]


def test_unsubscribing_ends_it_and_both_are_idempotent(world: World) -> None:
    a, b = world.join("a"), world.join("b")
    for _ in range(2):
        assert b.control(Subscribe(topic="t")) == Done()
    a.publish("t")
    for _ in range(2):
        assert b.control(Unsubscribe(topic="t")) == Done()
    a.publish("t")
    assert len(b.take()) == 1


@pytest.mark.parametrize(
    ("kind", "header"),
    [
        (Kind.WELCOME, {}),
        (Kind.ROUTED, {}),
        (Kind.LEAVING, {}),
        (99, {}),
        (Kind.CALL, {"to": "b", "message_id": 0}),
        (Kind.CALL, {"to": "b", "priority": 4}),
        (Kind.TELL, {"to": "b", "priority": -1}),
        (Kind.PUBLISH, {}),
    ],
)
def test_what_no_client_may_send_is_refused_and_reaches_nobody(
    world: World, kind: int, header: dict[str, object]
) -> None:
    a, b = world.join("a"), world.join("b")
    a.send(kind, b"", **header)
    assert b.take() == []
    assert world.counter("refused_protocol_error") == 1


def test_who_speaks_for_a_role_it_no_longer_holds_is_refused(world: World) -> None:
    a, old, new = world.join("a"), world.join("old"), world.join("new")
    generation = old.control(Claim(role="host")).generation
    number = a.call("role:host")
    a.take(), old.take()
    old.tell("a", fence=world.fence(generation))
    assert [each.brief for each in a.take()] == [(Kind.TELL, "old", b"!")]
    old.control(Release(role="host"))
    new.control(Claim(role="host"))
    old.tell("a", fence=world.fence(generation))
    assert failure("stale_generation", old.take()[0].message)
    assert a.take() == []
    old.reply("a", number, fence=world.fence(generation))
    assert failure("outcome_unknown", a.take()[0].message)
    assert world.counter("refused_stale_generation") == 2


def test_a_fence_of_another_epoch_is_stale(world: World) -> None:
    a, b = world.join("a"), world.join("b")
    generation = a.control(Claim(role="host")).generation
    fence = type(world.fence(0))("another epoch", generation)
    a.call("b", fence=fence)
    assert failure("stale_generation", a.take()[0].message)
    assert b.take() == []


def test_the_class_of_a_call_cannot_make_it_droppable(world: World) -> None:
    a, b = world.join("a"), world.join("b")
    b.is_blocked = True
    a.call("b", priority=Priority.DROPPABLE)
    b.is_blocked = False
    world.retry()
    assert [each.brief for each in b.take()] == [(Kind.CALL, "a", b"?")]


def test_a_call_that_its_caller_gave_up_is_forgotten_and_its_answer_dropped(world: World) -> None:
    a, b = world.join("a"), world.join("b")
    given_up, waited_for = a.call("b"), a.call("b")
    a.send(Kind.DONE, to="b@1", correlation_id=given_up)
    assert [each.header.kind for each in b.take()] == [Kind.CALL, Kind.CALL, Kind.DONE]
    b.reply("a", given_up)
    b.reply("a", waited_for)
    assert [each.header.correlation_id for each in a.take()] == [waited_for]
    assert world.core.state.peers["b"].serving == 0


def test_a_call_that_is_refused_when_it_is_sent_again_is_over(world: World) -> None:
    a, b = world.join("a"), world.join("b")
    fence = world.fence(a.control(Claim(role="host")).generation)
    number = a.call("b", fence=fence)
    a.control(Release(role="host"))
    a.call("b@1", fence=fence, message_id=number)
    assert failure("stale_generation", a.take()[0].message)
    b.reply("a", number)
    assert (a.take(), world.core.state.peers["a"].calls) == ([], {})


def test_an_answer_to_a_caller_s_last_life_is_not_one_to_its_next(world: World) -> None:
    b = world.join("b")
    world.join("a", incarnation=4).call("b", message_id=7)
    world.clients[max(world.clients)].die()
    a = world.join("a", incarnation=5)
    a.call("b", message_id=7)
    b.reply("a@4", 7, b"late")
    assert (a.take(), world.counter("unmatched_replies")) == ([], 1)
    b.reply("a@5", 7, b"right")
    assert a.briefs() == [(Kind.REPLY, "b", b"right")]
