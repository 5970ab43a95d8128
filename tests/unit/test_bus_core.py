"""The client's conversation with the broker, as transcripts with fake time."""

from pisub.client.bus_calls import PendingCall
from pisub.client.bus_core import SEARCH_AFTER_S, BusCore, Phase
from pisub.client.bus_events import Announce, Dial, Effect, End, FindBroker, Gone, Granted, HangUp, Reclaim, Rejected
from pisub.client.bus_hello import Identity
from pisub.client.bus_outbox import Outgoing
from pisub.client.bus_types import BusState
from pisub.errors import (
    BrokerUnavailableError,
    CallTimeoutError,
    ClientClosedError,
    IdentityInUseError,
    NotDeliveredError,
    OutcomeUnknownError,
)
from pisub.process import ProcessIdentity
from pisub.protocol.codec import decode, pack, unpack
from pisub.protocol.delivery import Fence, Header, Kind
from pisub.protocol.limits import WELCOME_TIMEOUT_S
from pisub.protocol.session import (
    Claim,
    Claimed,
    GoneReason,
    HeldRole,
    Hello,
    PeerKind,
    RoleGranted,
    Subscription,
    Terminated,
    Watch,
    Welcome,
)

ME = Identity(kind=PeerKind.CLIENT, address="me", incarnation=5, process=ProcessIdentity(pid=1))
LOST = [Announce(BusState.DISCONNECTED)]


def welcome(epoch: str = "one", *roles: HeldRole) -> Welcome:
    return Welcome(wire_version=1, address="me", epoch=epoch, broker=ProcessIdentity(pid=2), authority=31, roles=roles)


def online(epoch: str = "one", *roles: HeldRole, now: float = 0.0) -> BusCore:
    core = BusCore(ME)
    core.start()
    core.found("ipc://x", now)
    core.link_up(now)
    core.welcomed(welcome(epoch, *roles), now)
    return core


def open_call(
    core: BusCore,
    *,
    to: str = "role:host",
    is_sent: bool = True,
    is_repeatable: bool = False,
    deadline: float | None = None,
    fence: Fence | None = None,
) -> PendingCall:
    header = Header(kind=Kind.CALL, message_id=core.next_id(), to=to, fence=fence, ttl_ms=5_000 if deadline else 0)
    call = PendingCall(header, b"", None, deadline, is_sent=is_sent, is_repeatable=is_repeatable)
    core.calls.open(call)
    if not is_sent:
        core.outbox.push(Outgoing(pack(header), header, b"", call))
    return call


def waiting(core: BusCore) -> list[Header]:
    return [unpack(item.frame)[0] for item in core.outbox.take_all()]


def kinds(effects: list[Effect]) -> list[type]:
    return [type(effect) for effect in effects]


def test_the_first_connection_is_found_dialled_greeted_and_announced() -> None:
    core = BusCore(ME)
    assert core.start() == [FindBroker()]
    assert core.found("ipc://x", 0.0) == [Dial("ipc://x")]
    assert core.link_up(0.1) == []
    assert (core.phase, core.is_hello_due) == (Phase.GREETING, True)
    assert core.welcomed(welcome(), 0.2) == [Announce(BusState.CONNECTED)]
    assert (core.phase, core.epoch, core.next_deadline()) == (Phase.ONLINE, "one", None)


def test_a_hello_states_who_this_is_and_what_it_holds() -> None:
    core = online()
    core.begin_claim(Claim(role="host", scope="s", record_n=3))
    core.note_claimed(Claimed(role="host", scope="s", generation=9))
    core.begin_claim(Claim(role="rpc", wait=True))
    core.note_claimed(Claimed(role="rpc", generation=0, position=1))
    core.begin_claim(Claim(role="unanswered", wait=True))
    core.subscriptions[Subscription(topic="t", scope="s")] = None
    core.watches |= {"run:1": 0, "run:2": 7}
    header, body = unpack(core.hello())
    assert (header.kind, header.message_id) == (Kind.HELLO, core.hello_id)
    assert decode(body, Hello) == Hello(
        wire_versions=(1,),
        kind=PeerKind.CLIENT,
        address="me",
        incarnation=5,
        process=ProcessIdentity(pid=1),
        capabilities=("bundles",),
        roles=(HeldRole(role="host", scope="s", generation=9, record_n=3), HeldRole(role="rpc", generation=0)),
        subscriptions=(Subscription(topic="t", scope="s"),),
        watches=("run:1", "run:2@7"),
    )
    assert core.unstated() == []


def test_what_does_not_fit_into_a_hello_is_stated_after_it() -> None:
    core = online()
    core.watches = {f"run:{number:026}": 0 for number in range(16_384)}
    stated = decode(unpack(core.hello())[1], Hello).watches
    late = [request.address for request in core.unstated() if isinstance(request, Watch)]
    assert 0 < len(stated) < 16_384
    assert [*stated, *late] == list(core.watches)


def test_the_end_of_another_life_than_the_watched_one_is_old_news() -> None:
    core = online()
    core.watches["run:1"] = 0
    core.note_watched("run:1", 7)
    core.note_watched("run:2", 8)
    earlier, mine = (Terminated(address="run:1", reason=GoneReason.EXITED, incarnation=life) for life in (6, 7))
    assert core.note_terminated(earlier) == []
    assert core.watches == {"run:1": 7}
    assert core.note_terminated(mine) == [Gone(mine)]
    assert (core.note_terminated(mine), core.watches) == ([], {})


def test_a_lost_broker_is_looked_for_after_a_second() -> None:
    core = online()
    assert core.link_down(10.0) == LOST
    assert core.next_deadline() == 10.0 + SEARCH_AFTER_S
    assert core.tick(10.5) == []
    assert core.tick(11.0) == [FindBroker()]
    assert core.tick(12.0) == []
    assert core.found("ipc://y", 12.5) == [Dial("ipc://y")]
    assert core.tick(13.5) == [FindBroker()]


def test_a_connection_that_comes_back_in_time_is_greeted_without_a_search() -> None:
    core = online()
    core.link_down(10.0)
    assert core.link_up(10.1) == []
    assert core.welcomed(welcome("two"), 10.2) == [Announce(BusState.CONNECTED), Announce(BusState.RESYNC)]
    assert core.next_deadline() is None


def test_without_welcome_the_connection_is_left_and_a_broker_looked_for() -> None:
    core = BusCore(ME)
    core.start()
    core.found("ipc://x", 0.0)
    core.link_up(0.0)
    assert core.tick(WELCOME_TIMEOUT_S) == [HangUp(), FindBroker()]
    assert core.phase is Phase.OFFLINE


def test_a_leaving_broker_is_left_at_once() -> None:
    core = online()
    assert core.leaving() == [*LOST, HangUp(), FindBroker()]
    assert core.leaving() == []


def test_a_search_that_fails_is_reported_and_repeated() -> None:
    core = BusCore(ME)
    core.start()
    error = BrokerUnavailableError("none")
    assert core.not_found(error, 1.0) == [Rejected(error)]
    assert core.tick(1.0 + SEARCH_AFTER_S) == [FindBroker()]


def test_a_refused_hello_is_reported_and_said_again_later() -> None:
    core = BusCore(ME)
    core.start()
    core.found("ipc://x", 0.0)
    core.link_up(0.0)
    error = IdentityInUseError("taken")
    assert core.rejected(error, 0.5) == [Rejected(error)]
    assert core.tick(0.5 + WELCOME_TIMEOUT_S) == [HangUp(), FindBroker()]


def test_a_search_that_ends_while_a_connection_is_up_changes_nothing() -> None:
    core = online()
    core.link_down(0.0)
    core.tick(SEARCH_AFTER_S)
    core.link_up(1.1)
    assert core.found("ipc://x", 1.2) == []
    assert core.phase is Phase.GREETING


def test_a_broker_that_does_not_know_us_is_greeted_again() -> None:
    core = online()
    assert core.stranger(1.0) == LOST
    assert (core.phase, core.is_hello_due) == (Phase.GREETING, True)
    assert core.stranger(1.1) == []


def test_open_calls_are_sent_again_in_order_bound_and_before_what_waits() -> None:
    core = online()
    core.calls.note_life("run:1", 4)
    bound = open_call(core, deadline=20.0)
    core.calls.bind(bound.header.message_id, "host@8")
    open_call(core, to="run:1")
    open_call(core, is_repeatable=True)
    open_call(core, is_sent=False)
    tell = Header(kind=Kind.TELL, message_id=core.next_id(), to="x")
    core.outbox.push(Outgoing(pack(tell), tell, b""))
    core.link_down(10.0)
    core.link_up(18.0)
    core.welcomed(welcome("two"), 18.0)
    assert [(each.message_id, each.to, each.ttl_ms) for each in waiting(core)] == [
        (1, "host@8", 2_000),
        (2, "run:1@4", 0),
        (3, "role:host", 0),
        (4, "role:host", 0),
        (5, "x", 0),
    ]


def test_a_sent_call_that_nobody_is_known_to_have_ends_unknown_unless_it_may_be_repeated() -> None:
    core = online()
    call = open_call(core)
    core.link_down(1.0)
    core.link_up(1.1)
    effects = core.welcomed(welcome("two"), 1.2)
    ended = [effect for effect in effects if isinstance(effect, End)]
    assert [(each.call, type(each.error)) for each in ended] == [(call, OutcomeUnknownError)]
    assert not call.is_open
    assert waiting(core) == []


def test_not_delivered_is_unknown_for_a_call_that_was_sent_twice() -> None:
    core = online()
    call = open_call(core)
    core.calls.bind(1, "host@8")
    core.link_down(1.0)
    core.link_up(1.1)
    core.welcomed(welcome("two"), 1.2)
    (effect,) = core.failed(1, NotDeliveredError("nobody"))
    assert isinstance(effect, End)
    assert (effect.call, type(effect.error)) == (call, OutcomeUnknownError)
    assert core.failed(1, NotDeliveredError("nobody")) == []


def test_a_failed_call_ends_with_its_error() -> None:
    core = online()
    call = open_call(core)
    error = NotDeliveredError("nobody")
    assert core.failed(1, error) == [End(call, error)]


def test_calls_end_when_their_time_is_up_also_without_a_broker() -> None:
    core = online()
    call = open_call(core, deadline=5.0)
    core.link_down(4.5)
    (effect,) = core.tick(5.0)
    assert isinstance(effect, End)
    assert (effect.call, type(effect.error)) == (call, CallTimeoutError)


def test_a_grant_makes_a_waiting_claim_a_holding_one() -> None:
    core = online()
    core.begin_claim(Claim(role="host", wait=True))
    assert not core.note_claimed(Claimed(role="host", generation=0, position=1))
    granted = RoleGranted(role="host", generation=4)
    assert core.note_granted(granted) == [Granted(granted)]
    assert core.note_granted(granted) == []
    assert core.fence(("host", "")) == Fence("one", 4)


def test_a_grant_from_before_a_release_does_not_outlive_the_answer_to_the_next_claim() -> None:
    core = online()
    core.begin_claim(Claim(role="host", wait=True))
    core.note_claimed(Claimed(role="host", generation=0, position=1))
    core.forget_claim(("host", ""))
    core.begin_claim(Claim(role="host", wait=True))
    core.note_granted(RoleGranted(role="host", generation=4))
    core.note_claimed(Claimed(role="host", generation=0, position=1))
    assert core.fence(("host", "")) is None


def test_a_grant_of_the_last_connection_is_old_news_after_a_welcome_with_a_higher_number() -> None:
    core = online()
    core.begin_claim(Claim(role="host"))
    core.note_claimed(Claimed(role="host", generation=4))
    core.link_down(1.0)
    core.link_up(1.1)
    core.welcomed(welcome("one", HeldRole(role="host", generation=6)), 1.2)
    assert core.note_granted(RoleGranted(role="host", generation=5)) == []
    assert core.fence(("host", "")) == Fence("one", 6)


def test_a_grant_of_a_released_role_is_not_announced() -> None:
    core = online()
    core.begin_claim(Claim(role="host", wait=True))
    core.forget_claim(("host", ""))
    assert core.note_granted(RoleGranted(role="host", generation=4)) == []
    assert core.fence(("host", "")) is None


def test_roles_get_their_new_numbers_and_frames_that_wait_speak_with_them() -> None:
    core = online()
    core.begin_claim(Claim(role="host"))
    core.note_claimed(Claimed(role="host", generation=4))
    open_call(core, to="x", is_sent=False, fence=core.fence(("host", "")))
    core.link_down(1.0)
    core.link_up(1.1)
    effects = core.welcomed(welcome("two", HeldRole(role="host", generation=7)), 1.2)
    assert effects == [
        Announce(BusState.CONNECTED),
        Granted(RoleGranted(role="host", generation=7)),
        Announce(BusState.RESYNC),
    ]
    assert core.fence(("host", "")) == Fence("two", 7)
    assert [each.fence for each in waiting(core)] == [Fence("two", 7)]


def test_a_role_that_the_welcome_does_not_name_is_claimed_again_and_not_held() -> None:
    core = online()
    request = Claim(role="host", wait=True, record_n=2)
    core.begin_claim(request)
    core.note_claimed(Claimed(role="host", generation=4))
    core.link_down(1.0)
    core.link_up(1.1)
    assert Reclaim(request) in core.welcomed(welcome("two"), 1.2)
    assert core.fence(("host", "")) is None


def test_a_close_ends_every_open_call_and_nothing_happens_after_it() -> None:
    core = online()
    calls = [open_call(core, deadline=9.0), open_call(core, is_sent=False)]
    effects = core.close()
    assert [effect.call for effect in effects if isinstance(effect, End)] == calls
    assert all(isinstance(effect.error, ClientClosedError) for effect in effects if isinstance(effect, End))
    assert effects[-1] == Announce(BusState.CLOSED)
    assert core.close() == core.link_up(1.0) == core.link_down(1.0) == core.leaving() == core.tick(99.0) == []
    assert core.next_deadline() is None
