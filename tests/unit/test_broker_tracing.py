"""A trace shows envelopes to who may see them, costs nothing without one, and never shows a body."""

from __future__ import annotations

import pytest

from pisub.protocol import codec
from pisub.protocol.delivery import Header, Kind, Priority
from pisub.protocol.session import (
    TRACE_TOPIC,
    Authority,
    Claim,
    Done,
    Envelope,
    Failure,
    FindRole,
    PeerKind,
    Subscribe,
    Subscription,
    Traced,
    Unsubscribe,
)
from tests.support.broker_world import Client, World


@pytest.fixture
def world() -> World:
    return World()


def traced(client: Client) -> list[Envelope]:
    """Take what a tracer got, and nothing else."""
    seen = client.take()
    assert {(each.header.kind, each.header.topic, each.stamp.sender) for each in seen} <= {
        (Kind.PUBLISH, TRACE_TOPIC, "")
    }
    return [each for one in seen for each in codec.decode(one.body, Traced).envelopes]


def test_a_tracer_sees_what_peers_send_and_what_the_broker_says(world: World) -> None:
    tracer, a, b = world.join("tracer"), world.join("a"), world.join("b")
    b.control(Claim(role="echo", scope="s"))
    assert tracer.control(Subscribe(topic=TRACE_TOPIC)) == Done()
    tracer.take()
    number = a.call("role:echo", b"a secret", scope="s", ttl_ms=500)
    call = Envelope(
        sender="a", incarnation=1, kind=Kind.CALL, priority=2, message_id=number, scope="s", to="role:echo",
        ttl_ms=500, body_bytes=8,
    )  # fmt: skip
    assert traced(tracer) == [call, Envelope(kind=Kind.ROUTED, correlation_id=number, to="a")]
    assert b.take()[0].body == b"a secret"


def test_a_trace_has_frames_that_cannot_be_read_and_last_words(world: World) -> None:
    tracer, a = world.join("tracer", subscriptions=(Subscription(topic=TRACE_TOPIC),)), world.join("a")
    tracer.take()
    world.receive(a.route, b"garbage")
    a.send(Kind.GOODBYE)
    shown = traced(tracer)
    assert shown[0] == Envelope(sender="a", incarnation=1, body_bytes=7)
    assert [(each.sender, each.kind, each.to) for each in shown[1:]] == [("", Kind.FAIL, "a"), ("a", Kind.GOODBYE, "")]


def test_a_trace_that_is_taken_back_ends(world: World) -> None:
    tracer, a = world.join("tracer", subscriptions=(Subscription(topic=TRACE_TOPIC),)), world.join("a")
    tracer.control(Unsubscribe(topic=TRACE_TOPIC))
    tracer.take()
    a.tell("tracer")
    assert [each.stamp.sender for each in tracer.take()] == ["a"]


@pytest.mark.parametrize("bits", [0, Authority.CALL, Authority.OWNER & ~Authority.ADMIN])
def test_without_admin_there_is_no_trace(world: World, bits: int) -> None:
    wanted = (Subscription(topic=TRACE_TOPIC), Subscription(topic="t"))
    curious = world.join("curious", authority=bits, subscriptions=wanted)
    refused = curious.control(Subscribe(topic=TRACE_TOPIC))
    assert isinstance(refused, Failure)
    assert refused.code == "refused"
    world.join("a").control(FindRole(role="x"))
    assert curious.take() == []
    assert [each.topic for each in world.core.state.peers["curious"].subscriptions] == ["t"]


def test_a_child_that_traced_before_its_runner_came_traces_no_more(world: World) -> None:
    child = world.join("child", pid=50, ancestors=(40,), subscriptions=(Subscription(topic=TRACE_TOPIC),))
    world.join("run:r", pid=40, kind=PeerKind.RUNNER, session="")
    child.take()
    world.join("a")
    assert child.take() == []


def test_a_subscription_to_everything_is_no_trace(world: World) -> None:
    observer = world.join("observer", subscriptions=(Subscription(topic="", is_prefix=True),))
    world.join("tracer", subscriptions=(Subscription(topic=TRACE_TOPIC),))
    world.join("a").publish("t")
    assert [each.header.topic for each in observer.take()] == ["t"]


def test_nobody_forges_a_trace(world: World) -> None:
    tracer, a = world.join("tracer", subscriptions=(Subscription(topic=TRACE_TOPIC),)), world.join("a")
    tracer.take()
    number = a.publish(TRACE_TOPIC, b"forged")
    assert a.take()[0].message.code == "refused"
    assert next((each.kind, each.message_id) for each in traced(tracer)) == (Kind.PUBLISH, number)
    assert world.counter("refused_refused") == 1


def test_a_tracer_that_does_not_keep_up_is_told_how_much_it_missed(world: World) -> None:
    tracer, a = world.join("tracer", subscriptions=(Subscription(topic=TRACE_TOPIC),)), world.join("a")
    tracer.take()
    tracer.is_blocked = True
    for _ in range(5_000):
        a.tell("nobody", priority=Priority.DROPPABLE)
    waiting = world.core.state.peers["tracer"].mailbox
    assert waiting.queued_bytes < 300_000
    tracer.is_blocked = False
    world.retry()
    a.tell("nobody")
    missed = sum(each.stamp.dropped for each in tracer.inbox)
    assert missed > 1_000
    assert len(traced(tracer)) + missed >= 5_001


def test_the_longest_envelopes_still_fit(world: World) -> None:
    tracer = world.join("tracer", subscriptions=(Subscription(topic=TRACE_TOPIC),))
    a = world.join("a")
    tracer.take()
    frame = codec.pack(Header(kind=Kind.TELL, to="x" * 128, trace="t" * 1_850), b"!")
    world.apply(world.core.handle_batch([(a.route, frame)] * 60, world.now))
    assert [each.trace for each in traced(tracer)] == ["t" * 1_850] * 60


def test_a_long_turn_is_told_in_messages_that_fit(world: World) -> None:
    tracer = world.join("tracer", subscriptions=(Subscription(topic=TRACE_TOPIC),))
    others = [world.join(f"a{number}") for number in range(200)]
    tracer.take()
    number = others[0].control(Claim(role="x"))
    assert number
    tracer.take()
    world.core._leave("a test")
    world.advance(1.0)
    shown = [codec.decode(each.body, Traced) for each in tracer.take() if each.header.kind == Kind.PUBLISH]
    assert [len(each.envelopes) for each in shown] == [24] * 8 + [9]
