"""Who may send what: the whole table, and a child that tries everything."""

from __future__ import annotations

import pytest

from broker.authority import CONTROL_NEEDS, KIND_NEEDS, granted, narrowed
from pisub.protocol.base import Message
from pisub.protocol.delivery import Kind
from pisub.protocol.session import (
    Authority,
    Claim,
    ControlRequest,
    Failure,
    FindRole,
    HeldRole,
    PeerKind,
    Release,
    Shutdown,
    Status,
    Subscribe,
    Subscription,
    Unsubscribe,
    Unwatch,
    Watch,
)
from tests.support.broker_world import Client, World

REQUESTS: dict[type[Message], Message] = {
    Claim: Claim(role="host"),
    Release: Release(role="host"),
    FindRole: FindRole(role="host"),
    Subscribe: Subscribe(topic="t"),
    Unsubscribe: Unsubscribe(topic="t"),
    Watch: Watch(address="b"),
    Unwatch: Unwatch(address="b"),
    Status: Status(),
    Shutdown: Shutdown(),
}
RUNNER_PID = 50


@pytest.fixture
def world() -> World:
    return World()


def runner(world: World) -> Client:
    return world.join("run:r", pid=RUNNER_PID, kind=PeerKind.RUNNER, session="own")


def child(world: World, **hello: object) -> Client:
    return world.join("child", pid=60, ancestors=(55, RUNNER_PID, 40), **hello)


def test_the_table_names_every_request_there_is() -> None:
    assert set(CONTROL_NEEDS) == set(ControlRequest.__args__) == set(REQUESTS)  # type: ignore[attr-defined]


@pytest.mark.parametrize("request_type", CONTROL_NEEDS)
@pytest.mark.parametrize("bits", [0, Authority.CHILD, Authority.OWNER, Authority.OWNER & ~Authority.ADMIN])
def test_a_request_is_done_exactly_when_the_table_says_so(world: World, request_type: type[Message], bits: int) -> None:
    world.join("b")
    a = world.join("a", authority=bits)
    answer = a.control(REQUESTS[request_type])
    is_refused = isinstance(answer, Failure) and answer.code == "refused"
    assert is_refused == bool(CONTROL_NEEDS[request_type] & ~bits)
    assert world.core.state.is_leaving == (request_type is Shutdown and not is_refused)


@pytest.mark.parametrize("kind", [kind for kind, needed in KIND_NEEDS.items() if needed])
def test_without_the_call_bit_nothing_reaches_others(world: World, kind: int) -> None:
    a, b = world.join("a", authority=0), world.join("b")
    number = b.call("a")
    a.take()
    a.send(kind, b"", to="b", topic="t", correlation_id=number)
    assert b.take() == []
    assert world.counter("refused_refused") == 1


def test_a_hello_narrows_and_never_widens() -> None:
    assert [narrowed(Authority.CHILD, wish) for wish in (None, 0, 255, Authority.CLAIM)] == [Authority.CHILD, 0, 1, 0]


def test_the_kernels_word_decides_what_a_peer_gets() -> None:
    assert granted(is_same_user=False, pid=5, ancestors=(), runner_pids=()) == 0
    assert granted(is_same_user=True, pid=5, ancestors=(4, 3), runner_pids={9}) == Authority.OWNER
    assert granted(is_same_user=True, pid=5, ancestors=(4, 3), runner_pids={3}) == Authority.CHILD
    assert granted(is_same_user=True, pid=3, ancestors=(2,), runner_pids={3}) == Authority.OWNER
    assert granted(is_same_user=True, pid=0, ancestors=(), runner_pids=()) == Authority.CHILD


def test_a_descendant_of_a_live_runner_is_a_child_whatever_it_says(world: World) -> None:
    host = world.join("host")
    host.control(Claim(role="host", scope="own"))
    runner(world)
    a = child(world, kind=PeerKind.HOST, authority=Authority.OWNER, roles=(HeldRole(role="host", scope="own"),))
    assert [a.control(each).code for each in (Claim(role="x"), Release(role="host", scope="own"), Shutdown())] == [
        "refused"
    ] * 3
    a.tell("host")
    assert host.take()[0].stamp.authority == Authority.CHILD
    assert host.control(FindRole(role="host", scope="own")).address == "host"


def test_a_child_that_came_before_its_runner_is_narrowed_when_the_runner_comes(world: World) -> None:
    b, a = world.join("b"), child(world, subscriptions=(Subscription(topic="t", scope="other"),))
    a.control(Claim(role="host"))
    runner(world)
    assert b.control(FindRole(role="host")).address == ""
    b.publish("t", scope="other")
    assert a.take() == []
    assert a.control(Claim(role="host")).code == "refused"


def test_a_child_stays_a_child_when_its_runner_says_goodbye_and_lives_on(world: World) -> None:
    r = runner(world)
    r.send(Kind.GOODBYE)
    assert child(world).control(Claim(role="host")).code == "refused"


def test_when_the_runner_is_dead_nobody_is_its_child(world: World) -> None:
    r = runner(world)
    r.die()
    assert child(world).control(Claim(role="host")).generation == 1


def test_a_child_sees_only_what_is_published_in_its_runners_session(world: World) -> None:
    runner(world)
    a, b = child(world), world.join("b")
    assert a.control(Subscribe(topic="t", scope="other")).code == "refused"
    a.control(Subscribe(topic="t"))
    for scope in ("", "own", "other"):
        b.publish("t", scope.encode(), scope=scope)
    assert [each.body for each in a.take()] == [b"own"]
    a.control(Unsubscribe(topic="t"))
    b.publish("t", scope="own")
    assert a.take() == []


def test_a_process_that_was_gone_before_its_descent_could_be_read_is_a_child(world: World) -> None:
    a = world.connect(process=None, ancestors=()).hello("a", roles=(HeldRole(role="host", generation=1),))
    welcome = a.take()[0].message
    assert (welcome.authority, welcome.roles) == (Authority.CHILD, ())


def test_a_child_that_calls_itself_a_runner_opens_no_other_session_to_its_children(world: World) -> None:
    runner(world)
    world.join("run:fake", pid=60, ancestors=(RUNNER_PID,), kind=PeerKind.RUNNER, session="other")
    a = world.join("a", pid=61, ancestors=(60, RUNNER_PID))
    assert a.control(Subscribe(topic="t", scope="other")).code == "refused"


def test_a_child_cannot_pass_for_a_runner_of_another_process(world: World) -> None:
    runner(world)
    impostor = world.connect(pid=60, ancestors=(RUNNER_PID,))
    impostor.hello("run:r", kind=PeerKind.RUNNER, incarnation=2)
    assert impostor.take()[0].message.code == "identity_in_use"
    impostor.hello("run:other", kind=PeerKind.RUNNER, process=world.core.state.peers["run:r"].process)
    assert impostor.take()[0].message.code == "refused"
