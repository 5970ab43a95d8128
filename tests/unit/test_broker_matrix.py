"""The whole matrix: every kind of frame and every request, from a peer with every combination of rights."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from broker.authority import CONTROL_NEEDS, KIND_NEEDS
from pisub.protocol import codec
from pisub.protocol.base import Message
from pisub.protocol.delivery import Kind
from pisub.protocol.session import (
    TRACE_TOPIC,
    Authority,
    Claim,
    ControlRequest,
    Failure,
    FindRole,
    Release,
    Shutdown,
    Status,
    Subscribe,
    Unsubscribe,
    Unwatch,
    Watch,
)
from tests.support.broker_world import Client, World

#: Every combination of the six bits.
RIGHTS = range(2 * Authority.ASK)
#: Every kind there is, and three that there are not.
KINDS = [*sorted(value for value in vars(Kind).values() if isinstance(value, int)), 0, 13, 99]
REQUESTS: list[Message] = [
    Claim(role="host"),
    Claim(role="host", wait=True),
    Claim(role="free", scope="s"),
    Release(role="host"),
    FindRole(role="host"),
    Subscribe(topic="t"),
    Subscribe(topic=TRACE_TOPIC),
    Unsubscribe(topic="t"),
    Watch(address="b"),
    Unwatch(address="b"),
    Status(),
    Shutdown(),
]


def needs(request: Message) -> int:
    if isinstance(request, Subscribe) and request.topic == TRACE_TOPIC:
        return Authority.ADMIN
    return CONTROL_NEEDS[type(request)]


def made(bits: int) -> tuple[World, Client, Client, int]:
    """A world in which "b" holds a role and has a call open to "a", which has these rights."""
    world = World()
    a, b = world.join("a", authority=bits), world.join("b")
    b.control(Claim(role="host"))
    b.control(Subscribe(topic="t"))
    number = b.call("a")
    a.take()
    b.take()
    return world, a, b, number


def tables(world: World) -> Any:
    state = world.core.state
    return (
        sorted(state.peers),
        {key: (role.holder and role.holder.address, len(role.waiting)) for key, role in state.roles.items()},
        {peer.address: (set(peer.subscriptions), set(peer.watches), list(peer.calls)) for peer in state.peers.values()},
        sorted(state.watchers),
        state.is_leaving,
    )


def test_the_lists_are_whole() -> None:
    assert {type(each) for each in REQUESTS} == set(get_args(ControlRequest)) == set(CONTROL_NEEDS)
    assert set(KIND_NEEDS) < set(KINDS)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in (Kind.HELLO, Kind.GOODBYE, Kind.CONTROL)])
def test_a_kind_is_delivered_exactly_when_the_table_says_so(kind: int) -> None:
    for bits in RIGHTS:
        world, a, b, call = made(bits)
        before = tables(world)
        number = call if kind in (Kind.REPLY, Kind.FAIL) else 0
        a.send(kind, b"x", to="b", topic="t" if kind == Kind.PUBLISH else "", correlation_id=number)
        got = [each.stamp.sender for each in b.take()]
        needed = KIND_NEEDS.get(kind)
        if needed is None:
            assert (got, world.counter("refused_protocol_error"), tables(world)) == ([], 1, before), bits
        elif needed & ~bits:
            assert (got, world.counter("refused_refused"), tables(world)) == ([], 1, before), bits
        else:
            assert (got, world.counter("refused_refused")) == (["a"], 0), bits


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: f"{type(each).__name__}-{each}"[:60])
def test_a_request_is_done_exactly_when_the_table_says_so(request_: Message) -> None:
    for bits in RIGHTS:
        world, a, b, _ = made(bits)
        before = tables(world)
        a.send(Kind.CONTROL, request_)
        answer = a.take()[0].message
        is_refused = isinstance(answer, Failure) and answer.code == "refused"
        assert is_refused == bool(needs(request_) & ~bits), bits
        assert world.counter("refused_refused") == is_refused, bits
        if is_refused:
            assert (tables(world), b.take()) == (before, []), bits


def test_the_stamp_says_the_rights_whatever_they_are() -> None:
    for bits in RIGHTS:
        _, a, b, _ = made(bits)
        a.tell("b")
        assert [each.stamp.authority for each in b.take()] == ([bits] if bits & Authority.CALL else []), bits


@pytest.mark.parametrize("kind", KINDS)
def test_before_its_hello_a_connection_may_say_nothing_else(kind: int) -> None:
    if kind == Kind.HELLO:
        return
    world, _, b, call = made(Authority.OWNER)
    before = tables(world)
    stranger = world.connect()
    body = Shutdown() if kind == Kind.CONTROL else b"x"
    stranger.send(kind, body, to="b", topic="t", correlation_id=call)
    assert [codec.decode(each.body, Failure).code for each in stranger.take()] == ["hello_first"]
    assert (b.take(), tables(world)) == ([], before)
