"""Who is let in, as whom, and what happens when it goes."""

from __future__ import annotations

import pytest

from broker.effects import Disconnect, Leave, UnwatchProcess, WatchProcess
from broker.events import Accepted, LeaveRequested, MessageRefused
from pisub.protocol import codec
from pisub.protocol.delivery import Header, Kind
from pisub.protocol.session import (
    Authority,
    Claim,
    Done,
    Failure,
    FindRole,
    GoneReason,
    HeldRole,
    Hello,
    Leaving,
    PeerKind,
    Release,
    RoleHolder,
    Status,
    Subscribe,
    Subscription,
    Terminated,
    Unwatch,
    Watch,
    Welcome,
)
from tests.support.broker_world import EPOCH, Client, World, process


@pytest.fixture
def world() -> World:
    return World()


def refusal(client: Client) -> str:
    [seen] = client.take()
    assert seen.header.kind == Kind.FAIL
    return str(seen.message.code)


def test_a_hello_is_answered_with_everything_a_client_must_know(world: World) -> None:
    a = world.connect().hello("a")
    [seen] = a.take()
    assert (seen.stamp.sender, seen.stamp.epoch, seen.header.correlation_id) == ("", EPOCH, 1)
    assert seen.message == Welcome(
        wire_version=1,
        address="a",
        epoch=EPOCH,
        broker=process(1),
        authority=Authority.OWNER,
        capabilities=("bundles",),
        software="test",
    )
    assert world.effects == [WatchProcess(a.process)]


def test_a_client_that_names_no_address_gets_one(world: World) -> None:
    a = world.connect(pid=77).hello("", incarnation=255)
    assert a.take()[0].message.address == "client:77-ff"


def test_before_hello_nothing_is_done(world: World) -> None:
    stranger, b = world.connect(), world.join("b")
    for kind in (Kind.TELL, Kind.CALL, Kind.PUBLISH, Kind.CONTROL, Kind.REPLY, Kind.DONE):
        number = stranger.send(kind, b"", to="b", topic="t")
        assert stranger.inbox[-1].header.correlation_id == number
    assert {each.message.code for each in stranger.take()} == {"hello_first"}
    assert b.take() == []


def test_a_connection_that_never_says_hello_is_dropped(world: World) -> None:
    stranger = world.connect()
    world.advance(6)
    assert world.effects == [Disconnect(stranger.route)]


def test_an_address_belongs_to_a_process_until_it_dies(world: World) -> None:
    a = world.join("a", pid=10)
    b = world.connect(pid=11).hello("a", incarnation=2)
    assert refusal(b) == "identity_in_use"
    a.lose_connection()
    b.hello("a", incarnation=2)
    assert refusal(b) == "identity_in_use"
    a.die()
    b.hello("a", incarnation=2)
    assert b.take()[0].header.kind == Kind.WELCOME


def test_one_process_can_have_two_clients_at_two_addresses(world: World) -> None:
    a, b = world.join("a", pid=10), world.join("b", pid=10)
    a.tell("b")
    assert b.briefs() == [(Kind.TELL, "a", b"!")]
    a.send(Kind.GOODBYE)
    assert UnwatchProcess(a.process) not in world.effects
    b.send(Kind.GOODBYE)
    assert world.effects[-1] == UnwatchProcess(a.process)


def test_a_newer_life_in_the_same_process_replaces_the_older_which_cannot_come_back(world: World) -> None:
    watcher = world.join("watcher")
    old = world.join("a", pid=10, incarnation=1)
    watcher.control(Watch(address="a"))
    old.control(Claim(role="host"))
    new = world.join("a", pid=10, incarnation=2)
    assert Disconnect(old.route) in world.effects
    assert watcher.briefs() == [(Kind.TELL, "", Terminated(address="a", reason=GoneReason.LOST, incarnation=1))]
    assert watcher.control(FindRole(role="host")) == RoleHolder(role="host", vacated_ms_ago=0)
    back = world.connect(pid=10).hello("a", incarnation=1)
    assert refusal(back) == "identity_in_use"
    watcher.tell("a")
    assert new.briefs() == [(Kind.TELL, "watcher", b"!")]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"wire_versions": (7,)}, "unsupported_version"),
        ({"wire_versions": ()}, "unsupported_version"),
        ({"address": "a b"}, "invalid_argument"),
        ({"address": "role:host"}, "invalid_argument"),
        ({"address": "run:x"}, "refused"),
        ({"address": "x", "kind": PeerKind.RUNNER}, "refused"),
        ({"address": "run:x", "kind": PeerKind.RUNNER, "process": process(4242)}, "refused"),
    ],
)
def test_a_hello_that_cannot_be_is_refused_with_its_reason(world: World, fields: dict[str, object], code: str) -> None:
    client = world.connect()
    client.hello(**{"address": "a", **fields})  # type: ignore[arg-type]
    assert refusal(client) == code
    assert world.core.state.peers == {}


def test_a_hello_that_does_not_decode_is_a_protocol_error(world: World) -> None:
    client = world.connect()
    client.send(Kind.HELLO, b"\xc1")
    assert refusal(client) == "protocol_error"


def test_another_user_is_told_so_and_dropped(world: World) -> None:
    client = world.connect(is_same_user=False).hello("a")
    assert refusal(client) == "refused"
    assert world.effects == [Disconnect(client.route)]


def test_with_no_descriptor_left_a_new_peer_is_told_so(world: World) -> None:
    client = world.connect(is_full=True).hello("a")
    assert refusal(client) == "too_many_peers"
    world.advance(1)
    assert world.effects == [Disconnect(client.route)]


def test_a_message_of_several_frames_is_refused_and_counted(world: World) -> None:
    a = world.join("a")
    world.handle(MessageRefused(a.route, "protocol_error"))
    assert refusal(a) == "protocol_error"
    assert world.counter("refused_protocol_error") == 1


# Watches and ends ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (Client.die, GoneReason.EXITED),
        (lambda client: client.send(Kind.GOODBYE), GoneReason.GOODBYE),
        (lambda client: (client.lose_connection(), client.world.advance(2.5)), GoneReason.LOST),
    ],
)
def test_a_watcher_is_told_once_how_the_watched_went(world: World, end: object, reason: GoneReason) -> None:
    a, b = world.join("a"), world.join("b", incarnation=5)
    assert a.control(Watch(address="b")) == Done(incarnation=5)
    a.control(Watch(address="b"))
    end(b)  # type: ignore[operator]
    assert a.briefs() == [(Kind.TELL, "", Terminated(address="b", reason=reason, incarnation=5))]
    world.join("b").die()
    assert a.take() == []


def test_a_watch_on_what_is_already_gone_is_answered_at_once(world: World) -> None:
    a = world.join("a")
    a.send(Kind.CONTROL, Watch(address="nobody"))
    assert [each.message for each in a.take()] == [
        Done(),
        Terminated(address="nobody", reason=GoneReason.UNKNOWN),
    ]


def test_a_watch_on_another_life_than_the_one_that_is_there_is_answered_at_once(world: World) -> None:
    a = world.join("a")
    world.join("b", incarnation=5)
    a.send(Kind.CONTROL, Watch(address="b@4"))
    assert [each.message for each in a.take()] == [
        Done(incarnation=4),
        Terminated(address="b", reason=GoneReason.UNKNOWN, incarnation=4),
    ]


@pytest.mark.parametrize("address", ["", "b@", "b@0", "b@x", "b@1@2", "@1", "b@" + "9" * 20])
def test_what_names_no_life_of_an_address_cannot_be_watched(world: World, address: str) -> None:
    a = world.join("a")
    assert a.control(Watch(address=address)).field == "address"
    assert a.control(Unwatch(address=address)).field == "address"
    again = world.join("c", watches=(address,))
    assert (again.take(), world.core.state.watchers) == ([], {})


@pytest.mark.parametrize("comes_first", ["watcher", "watched"])
def test_a_life_that_ended_and_was_followed_by_another_while_no_broker_ran_is_told_of(comes_first: str) -> None:
    world = World(settle_s=1.0)
    if comes_first == "watched":
        world.join("b", incarnation=6)
    a = world.join("a", watches=("b@5",))
    if comes_first == "watcher":
        assert a.take() == []
        world.join("b", incarnation=6)
    assert a.briefs() == [(Kind.TELL, "", Terminated(address="b", reason=GoneReason.UNKNOWN, incarnation=5))]
    world.advance(2)
    assert (a.take(), world.core.state.watchers) == ([], {})


def test_the_life_that_is_watched_may_come_back_to_the_next_broker(world: World) -> None:
    world = World(settle_s=1.0)
    a = world.join("a", watches=("b@5", "gone@3", "never"))
    b = world.join("b", incarnation=5)
    world.advance(2)
    assert a.briefs() == [
        (Kind.TELL, "", Terminated(address="gone", reason=GoneReason.UNKNOWN, incarnation=3)),
        (Kind.TELL, "", Terminated(address="never", reason=GoneReason.UNKNOWN)),
    ]
    b.die()
    assert a.briefs() == [(Kind.TELL, "", Terminated(address="b", reason=GoneReason.EXITED, incarnation=5))]


def test_a_watch_taken_back_is_silent(world: World) -> None:
    a, b = world.join("a"), world.join("b")
    a.control(Watch(address="b"))
    a.control(Unwatch(address="b"))
    b.die()
    assert a.take() == []


def test_stragglers_after_a_goodbye_are_ignored_and_counted(world: World) -> None:
    a, b = world.join("a"), world.join("b")
    a.send(Kind.GOODBYE)
    a.tell("b")
    a.send(Kind.GOODBYE)
    assert (a.take(), b.take()) == ([], [])
    assert world.counter("after_goodbye") == 2


def test_a_death_ends_every_peer_of_the_process_and_nothing_is_left_of_them(world: World) -> None:
    a, b = world.join("a", pid=10), world.join("b", pid=10)
    for client in (a, b):
        client.control(Claim(role="r" + client.route.hex()))
        client.control(Subscribe(topic="t"))
        client.control(Watch(address="c"))
    a.call("b")
    a.die()
    state = world.core.state
    assert (state.peers, state.by_route, state.by_process, state.watchers) == ({}, {}, {}, {})
    assert state.topics.receivers("t", "") == ()


# Lost connections ------------------------------------------------------------------------------------------------


def test_a_lost_connection_resumes_within_the_grace_with_everything_it_had(world: World) -> None:
    a, b = world.join("a"), world.join("b", pid=20)
    generation = b.control(Claim(role="host")).generation
    number = a.call("b")
    b.take()
    b.lose_connection()
    a.tell("b", b"meanwhile")
    world.advance(1.5)
    assert a.take() == []
    again = world.connect(pid=20)
    again.hello("b", roles=(HeldRole(role="host", generation=generation),))
    world.retry()
    welcome, waited = again.take()
    assert (welcome.message.resync, welcome.message.roles[0].generation) == (True, generation)
    assert waited.brief == (Kind.TELL, "a", b"meanwhile")
    [routed] = a.take()
    assert (routed.header.kind, routed.header.correlation_id, routed.header.to) == (Kind.ROUTED, number, "b@1")
    a.call("b@1", message_id=number)
    assert again.briefs() == [(Kind.CALL, "a", b"?")]
    again.reply("a", number)
    world.advance(10)
    assert a.briefs() == [(Kind.REPLY, "b", b"=")]


def test_after_the_grace_its_calls_and_roles_are_gone(world: World) -> None:
    a, b = world.join("a"), world.join("b")
    b.control(Claim(role="host"))
    a.call("role:host")
    a.take()
    b.lose_connection()
    world.advance(2.5)
    assert [each.message.code for each in a.take()] == ["outcome_unknown"]
    assert a.control(FindRole(role="host")).address == ""


def test_a_death_cuts_the_grace_short(world: World) -> None:
    a, b = world.join("a"), world.join("b")
    a.control(Watch(address="b"))
    b.lose_connection()
    b.die()
    assert a.briefs() == [(Kind.TELL, "", Terminated(address="b", reason=GoneReason.EXITED, incarnation=1))]


def test_what_a_resuming_hello_does_not_state_is_given_back(world: World) -> None:
    a, b = world.join("a", subscriptions=(Subscription(topic="t"),)), world.join("b")
    a.control(Claim(role="host"))
    a.lose_connection()
    again = world.connect(pid=a.process.pid).hello("a", subscriptions=(Subscription(topic="u"),))
    again.take()
    b.publish("t")
    b.publish("u")
    assert len(again.take()) == 1
    assert b.control(FindRole(role="host")).address == ""


# Leaving ---------------------------------------------------------------------------------------------------------


def test_a_broker_that_leaves_tells_everybody_and_answers_what_still_comes(world: World) -> None:
    a, stranger = world.join("a"), world.connect()
    world.handle(LeaveRequested("signal"))
    a.tell("nobody")
    stranger.hello("b")
    assert [each.message for each in a.take()] == [Leaving(reason="signal"), Leaving(reason="leaving")]
    assert [each.message for each in stranger.take()] == [Leaving(reason="leaving")]
    assert world.effects[-1] == Leave("signal")


def test_a_broker_without_peers_leaves_when_idle_and_not_before() -> None:
    world = World(idle_exit_s=30)
    world.advance(29)
    a = world.join("a")
    world.advance(100)
    a.send(Kind.GOODBYE)
    a.lose_connection()
    world.advance(29)
    assert not any(isinstance(each, Leave) for each in world.effects)
    world.advance(2)
    assert world.effects[-1] == Leave("idle")


def test_the_status_names_every_peer_and_counts(world: World) -> None:
    a, b = world.join("a", session="s"), world.join("b")
    b.control(Claim(role="host", scope="s"))
    a.call("b")
    report = a.control(Status())
    assert [(each.address, each.session, each.open_calls) for each in report.peers] == [("a", "s", 1), ("b", "", 0)]
    assert report.roles == (RoleHolder(role="host", scope="s", address="b", generation=1),)
    assert (report.open_calls, report.counters["peers"], report.counters["received"]) == (1, 2, 5)


def test_the_status_of_very_many_peers_still_fits_a_message(world: World) -> None:
    for number in range(2000):
        world.join(f"{'x' * 100}{number}", session="s" * 200)
    report = world.join("a").control(Status())
    assert isinstance(report, Failure) is False
    assert report.counters["peers"] == 2001


def test_a_connection_accepted_twice_is_one_connection(world: World) -> None:
    a = world.join("a")
    world.handle(Accepted(route=a.route, is_same_user=True, pid=a.process.pid, process=a.process))
    a.tell("a")
    assert a.briefs() == [(Kind.TELL, "a", b"!")]


def test_frames_in_one_batch_are_handled_in_order_also_hello_and_what_follows(world: World) -> None:
    a, b = world.connect(), world.join("b")
    hello = codec.encode(Hello(wire_versions=(1,), kind=PeerKind.CLIENT, address="a", incarnation=1, process=a.process))
    frames = [codec.pack(Header(kind=Kind.HELLO), hello), codec.pack(Header(kind=Kind.TELL, to="b"), b"1"),
              codec.pack(Header(kind=Kind.GOODBYE)), codec.pack(Header(kind=Kind.TELL, to="b"), b"2")]  # fmt: skip
    world.apply(world.core.handle_batch([(a.route, each) for each in frames], world.now))
    assert b.briefs() == [(Kind.TELL, "a", b"1")]


def test_releasing_what_one_does_not_hold_is_no_error(world: World) -> None:
    assert world.join("a").control(Release(role="host")) == Done()
