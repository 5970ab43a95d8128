"""Roles: first claim wins, who waits is next, generations tell holders apart."""

from __future__ import annotations

import pytest

from pisub.protocol.delivery import Kind
from pisub.protocol.limits import MAX_ROLES
from pisub.protocol.session import (
    Claim,
    Claimed,
    Done,
    Failure,
    FindRole,
    HeldRole,
    Release,
    RoleGranted,
    RoleHolder,
)
from tests.support.broker_world import World


@pytest.fixture
def world() -> World:
    return World()


def test_the_first_of_twenty_claims_wins(world: World) -> None:
    clients = [world.join(f"c{number}") for number in range(20)]
    answers = [each.control(Claim(role="host", scope="s")) for each in clients]
    assert answers[0] == Claimed(role="host", scope="s", generation=1, holder="c0")
    assert {(each.code, each.holder) for each in answers[1:]} == {("role_taken", "c0")}


def test_claiming_again_what_one_holds_changes_nothing(world: World) -> None:
    a = world.join("a")
    assert (
        a.control(Claim(role="host")) == a.control(Claim(role="host")) == Claimed(role="host", generation=1, holder="a")
    )


def test_waiting_claimants_follow_in_order_each_with_a_new_generation(world: World) -> None:
    a, b, c = world.join("a"), world.join("b"), world.join("c")
    a.control(Claim(role="host"))
    assert b.control(Claim(role="host", wait=True)) == Claimed(role="host", generation=0, position=1, holder="a")
    assert c.control(Claim(role="host", wait=True)) == Claimed(role="host", generation=0, position=2, holder="a")
    a.control(Release(role="host"))
    assert b.briefs() == [(Kind.TELL, "", RoleGranted(role="host", generation=2))]
    b.die()
    assert c.briefs() == [(Kind.TELL, "", RoleGranted(role="host", generation=3))]


def test_a_claimant_that_leaves_the_queue_is_passed_over(world: World) -> None:
    a, b, c = world.join("a"), world.join("b"), world.join("c")
    a.control(Claim(role="host"))
    b.control(Claim(role="host", wait=True))
    c.control(Claim(role="host", wait=True))
    assert b.control(Release(role="host")) == Done()
    a.send(Kind.GOODBYE)
    assert b.briefs() == []
    assert c.briefs() == [(Kind.TELL, "", RoleGranted(role="host", generation=2))]


def test_finding_a_role_names_its_holder_or_says_how_long_it_is_vacant(world: World) -> None:
    a, b = world.join("a"), world.join("b")
    assert b.control(FindRole(role="host")) == RoleHolder(role="host")
    a.control(Claim(role="host"))
    assert b.control(FindRole(role="host")) == RoleHolder(role="host", address="a", generation=1)
    a.die()
    world.advance(3)
    assert b.control(FindRole(role="host")) == RoleHolder(role="host", vacated_ms_ago=3000)


def test_a_claim_with_an_older_record_number_than_one_seen_is_refused(world: World) -> None:
    a, b = world.join("a"), world.join("b")
    a.control(Claim(role="host", record_n=2))
    a.die()
    assert b.control(Claim(role="host", record_n=1)).code == "stale_generation"
    assert b.control(Claim(role="host", record_n=3)) == Claimed(role="host", generation=2, holder="b")


def test_the_record_number_of_one_who_only_waits_does_not_shut_the_holder_out(world: World) -> None:
    a, view = world.join("a"), world.join("view")
    a.control(Claim(role="host", record_n=1))
    view.control(Claim(role="host", record_n=2, wait=True))
    a.control(Release(role="host"))
    view.control(Release(role="host"))
    b = world.join("b")
    assert b.control(Claim(role="host", record_n=1)).code == "stale_generation", "the view held it for a moment"


@pytest.mark.parametrize("role", ["", "Host", "role:host", "a" * 65, "a b", "a\n"])
def test_a_text_that_names_no_role_is_refused(world: World, role: str) -> None:
    answer = world.join("a").control(Claim(role=role))
    assert (answer.code, answer.field) == ("invalid_argument", "role")


def test_a_peer_holds_at_most_so_many_roles(world: World) -> None:
    a = world.join("a")
    for number in range(MAX_ROLES):
        assert isinstance(a.control(Claim(role=f"r{number}")), Claimed)
    assert isinstance(a.control(Claim(role="one-more")), Failure)
    a.control(Release(role="r0"))
    assert isinstance(a.control(Claim(role="one-more")), Claimed)


def test_a_hello_takes_back_what_is_free_and_waits_for_what_it_waited_for(world: World) -> None:
    a = world.join("a")
    a.control(Claim(role="taken"))
    held = (HeldRole(role="free", generation=4), HeldRole(role="taken", generation=5), HeldRole(role="queued"))
    b = world.connect().hello("b", roles=(*held, HeldRole(role="taken", scope="x", generation=0)))
    welcome = b.inbox.pop(0).message
    assert welcome.roles == (
        HeldRole(role="free", generation=2),
        HeldRole(role="queued", generation=3),
        HeldRole(role="taken", scope="x", generation=4),
    )


def test_in_a_broker_that_settles_a_waiting_claim_does_not_overtake_the_holder_that_comes_back() -> None:
    world = World(settle_s=1.0)
    view = world.join("view")
    assert view.control(Claim(role="host", wait=True)) == Claimed(role="host", generation=0, position=1)
    world.advance(0.5)
    host = world.connect().hello("host", roles=(HeldRole(role="host", generation=9),))
    assert host.take()[0].message.roles == (HeldRole(role="host", generation=1),)
    world.advance(2)
    assert view.take() == []
    host.die()
    assert view.briefs() == [(Kind.TELL, "", RoleGranted(role="host", generation=2))]


def test_when_a_broker_has_settled_a_waiting_claim_for_a_free_role_is_granted() -> None:
    world = World(settle_s=1.0)
    view = world.join("view")
    view.control(Claim(role="host", wait=True))
    world.advance(1.3)
    assert view.briefs() == [(Kind.TELL, "", RoleGranted(role="host", generation=1))]
