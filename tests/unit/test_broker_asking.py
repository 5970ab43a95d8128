"""Who may send to the role `host`: the bit, who has it, and that nothing gives it back."""

from __future__ import annotations

import pytest

from pisub.protocol import codec
from pisub.protocol.delivery import Kind
from pisub.protocol.session import Authority, Claim, Failure, PeerKind
from tests.support.broker_world import Client, World, process

ALL = range(64)
NO_ASK = Authority.OWNER & ~Authority.ASK
RUNNER_PID = 50


@pytest.fixture
def world() -> World:
    made = World()
    made.join("h", session="s").control(Claim(role="host", scope="s"))
    return made


def host(world: World) -> Client:
    return next(each for each in world.clients.values() if each.process.pid == 101)


def runner(world: World, *, bits: int | None, pid: int = RUNNER_PID, name: str = "run:r", **more: object) -> Client:
    return world.join(name, pid=pid, kind=PeerKind.RUNNER, session="s", authority=bits, **more)


def reaches_the_human(world: World, peer: Client) -> bool:
    """Call and tell the role, and see both arrive or both refused and counted."""
    before, refused = world.counter("refused_asks"), 0
    seen = []
    for kind in (Kind.CALL, Kind.TELL):
        peer.take()
        peer.send(kind, b"?", to="role:host", scope="s")
        arrived = host(world).take()
        answers = [codec.decode(each.body, Failure).code for each in peer.take() if each.header.kind == Kind.FAIL]
        seen.append((len(arrived), answers))
        refused += len(answers)
    assert world.counter("refused_asks") == before + refused
    assert seen in ([(1, []), (1, [])], [(0, ["refused"]), (0, ["refused"])])
    return bool(seen[0][0])


def test_the_role_of_the_host_is_reached_exactly_with_the_bits_call_and_ask() -> None:
    for bits in ALL:
        world = World()
        world.join("h", session="s").control(Claim(role="host", scope="s"))
        peer = world.join("a", authority=bits)
        peer.send(Kind.CALL, b"?", to="role:host", scope="s")
        came = [each.header.kind for each in host(world).take()]
        assert came == ([Kind.CALL] if bits & Authority.CALL and bits & Authority.ASK else []), bits


def test_a_role_of_another_name_needs_no_ask(world: World) -> None:
    other = world.join("o")
    other.control(Claim(role="other", scope="s"))
    runner(world, bits=NO_ASK).call("role:other", scope="s")
    assert [each.header.kind for each in other.take()] == [Kind.CALL]


def test_a_runner_asks_and_what_it_started_does_not(world: World) -> None:
    assert reaches_the_human(world, runner(world, bits=None))
    assert not reaches_the_human(world, world.join("c", pid=60, ancestors=(RUNNER_PID,)))


@pytest.mark.parametrize("is_first", [True, False])
def test_no_connection_of_a_process_has_more_than_its_runner(world: World, is_first: bool) -> None:
    early = world.join("early", pid=RUNNER_PID) if is_first else None
    asks = runner(world, bits=NO_ASK)
    late = world.join("late", pid=RUNNER_PID, kind=PeerKind.HOST)
    for peer in filter(None, (early, asks, late)):
        assert not reaches_the_human(world, peer)


def test_a_runner_that_says_hello_again_gets_nothing_back(world: World) -> None:
    runner(world, bits=NO_ASK)
    again = world.connect(pid=RUNNER_PID).hello("run:r", kind=PeerKind.RUNNER, session="s")
    assert again.take()[0].message.authority & Authority.ASK == 0
    assert not reaches_the_human(world, again)


@pytest.mark.parametrize("outer_bits", [None, NO_ASK])
def test_a_runner_below_a_runner_asks_exactly_where_that_one_may(world: World, outer_bits: int | None) -> None:
    runner(world, bits=outer_bits)
    nested = runner(world, bits=None, pid=70, name="run:n", ancestors=(60, RUNNER_PID))
    assert reaches_the_human(world, nested) == (outer_bits is None)


def test_an_address_that_names_a_pid_is_that_process_s_alone(world: World) -> None:
    for address, is_let_in in (("child:70-a", True), ("child:71-a", False), ("child:70", True), ("child:", False)):
        client = world.connect(pid=70).hello(address)
        kinds = [each.header.kind for each in client.take()]
        assert kinds == [Kind.WELCOME if is_let_in else Kind.FAIL], address
    nobody = world.connect(pid=0, process=None).hello("child:0-a", process=process(1))
    assert [each.header.kind for each in nobody.take()] == [Kind.FAIL]
