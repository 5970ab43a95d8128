"""What a client does with each frame that comes, as transcripts: connections that overlap, and answers that are old."""

from collections.abc import Sequence
from typing import Any

import pytest

from pisub.client.bus_callee import Callee
from pisub.client.bus_calls import PendingCall
from pisub.client.bus_core import BusCore, Phase
from pisub.client.bus_events import Announce, Effect, End, Gone, Granted, Skip
from pisub.client.bus_handlers import Handlers
from pisub.client.bus_hello import Identity
from pisub.client.bus_receive import Receiver
from pisub.client.bus_types import BusState
from pisub.errors import OutcomeUnknownError
from pisub.process import ProcessIdentity
from pisub.protocol.base import Message
from pisub.protocol.codec import decode, encode, pack, pack_stamp, unpack
from pisub.protocol.delivery import Fence, Flag, Header, Kind, Stamp
from pisub.protocol.session import (
    Arrived,
    Claim,
    Claimed,
    ControlRequest,
    Done,
    Failure,
    GoneReason,
    HeldRole,
    PeerKind,
    Release,
    RoleGranted,
    Routed,
    Subscription,
    Terminated,
    Unsubscribe,
    Welcome,
)

ROLE = ("host", "")
BrokerRequest: Any = ControlRequest


class Client:
    """A core and its receiver; what it sends is read out of its outbox."""

    def __init__(self) -> None:
        self.core = BusCore(Identity(kind=PeerKind.CLIENT, address="me", incarnation=5, process=ProcessIdentity(pid=1)))
        handlers = Handlers(lambda *_: None)
        self.answered: list[tuple[PendingCall, bytes]] = []
        callee = Callee(self.core, handlers, post=self._post, spawn=self._spawn, report=print)
        self.receiver = Receiver(self.core, callee, lambda call, body: self.answered.append((call, bytes(body))))
        self.core.start()
        self.core.found("ipc://x", 0.0)

    def _post(self, *_: object) -> None:
        raise AssertionError("nobody calls this client")

    def _spawn(self, *_: object) -> None:
        raise AssertionError("nobody calls this client")

    def gets(
        self, kind: int, body: Message | bytes = b"", *, sender: str = "", epoch: str = "one", **header: Any
    ) -> Any:
        stamp = Stamp(sender=sender, incarnation=8 if sender else 0, epoch=epoch)
        data = body if isinstance(body, bytes) else encode(body)
        return list(self.receiver.receive(pack_stamp(stamp), pack(Header(kind=kind, **header), data), 2.0))

    def greet(self, epoch: str = "one", *roles: HeldRole) -> Sequence[Effect]:
        """Connect, say Hello, and get the Welcome."""
        self.core.link_up(1.0)
        self.sends()
        return self.welcome(self.core.hello_id, epoch, *roles)

    def welcome(self, hello_id: int, epoch: str, *roles: HeldRole) -> Sequence[Effect]:
        broker = ProcessIdentity(pid=2)
        message = Welcome(wire_version=1, address="me", epoch=epoch, broker=broker, authority=31, roles=roles)
        return self.gets(Kind.WELCOME, message, epoch=epoch, correlation_id=hello_id)

    def sends(self) -> list[tuple[Header, bytes]]:
        sent: list[bytes] = []
        self.core.drain(lambda frame: sent.append(frame) is None)
        return [unpack(frame) for frame in sent]

    def opens(self, to: str = "role:host", **fields: Any) -> PendingCall:
        kind = Kind.CONTROL if fields.get("claim") else Kind.CALL
        header = Header(kind=kind, message_id=self.core.next_id(), to="" if fields.get("claim") else to)
        fields = {"waiter": object(), "is_repeatable": True, **fields}
        call = PendingCall(header, encode(fields["claim"]) if fields.get("claim") else b"", **fields)
        self.core.calls.open(call)
        self.core.hand_over(pack(header, call.body), call, lambda _: True)
        return call


@pytest.fixture
def client() -> Client:
    client = Client()
    client.greet()
    return client


def test_a_reply_ends_its_call_once(client: Client) -> None:
    call = client.opens("x")
    assert client.gets(Kind.REPLY, b"=", sender="x", correlation_id=call.header.message_id) == []
    assert client.answered == [(call, b"=")]
    assert client.gets(Kind.REPLY, b"=", sender="x", correlation_id=call.header.message_id) == []
    assert client.receiver.ignored == 1


def test_what_makes_no_sense_is_skipped_and_counted(client: Client) -> None:
    assert list(client.receiver.receive(b"\xc1", b"", 2.0)) == [Skip()]
    assert client.gets(99, sender="x") == client.gets(99) == client.gets(Kind.TELL, b"\xc1") == []
    assert client.receiver.ignored == 4


def test_a_gap_is_announced_by_the_message_that_tells_of_it(client: Client) -> None:
    call = client.opens("x")
    stamp, header = (
        Stamp(sender="x", epoch="one", dropped=2),
        Header(kind=Kind.REPLY, correlation_id=call.header.message_id),
    )
    assert list(client.receiver.receive(pack_stamp(stamp), pack(header, b"="), 2.0)) == [Announce(BusState.RESYNC)]
    assert client.answered == [(call, b"=")]


def test_the_welcome_of_a_connection_that_is_gone_is_not_that_of_the_new_one(client: Client) -> None:
    client.core.link_up(1.0)
    client.sends()
    old = client.core.hello_id
    client.core.link_down(1.1)
    client.core.link_up(1.2)
    assert client.welcome(old, "one") == []
    client.sends()
    assert client.welcome(old, "one") == []
    assert client.core.phase is Phase.GREETING
    assert client.welcome(client.core.hello_id, "two") != []
    assert (client.core.phase, client.core.epoch) == (Phase.ONLINE, "two")


def test_what_the_last_broker_said_of_calls_and_roles_is_old_when_the_next_has_greeted(client: Client) -> None:
    call = client.opens()
    client.core.begin_claim(Claim(role="host", wait=True))
    client.greet("two")
    client.sends()
    number = call.header.message_id
    assert client.gets(Kind.FAIL, Failure(code="not_delivered", message=""), correlation_id=number) == []
    assert client.gets(Kind.ROUTED, correlation_id=number, to="a@1") == []
    assert client.gets(Kind.TELL, RoleGranted(role="host", generation=9)) == []
    assert (call.is_open, call.bound_to, client.core.fence(ROLE)) == (True, "", None)
    assert client.gets(Kind.ROUTED, correlation_id=number, to="b@1", epoch="two") == []
    assert call.bound_to == "b@1"


def test_the_answer_to_a_claim_counts_before_anybody_wakes_for_it(client: Client) -> None:
    claim = Claim(role="host")
    client.core.begin_claim(claim)
    call = client.opens(claim=claim)
    client.gets(Kind.REPLY, Claimed(role="host", generation=3), correlation_id=call.header.message_id)
    assert ([each for each, _ in client.answered], client.core.fence(ROLE)) == ([call], Fence("one", 3))


def test_the_last_connection_s_answer_to_a_claim_is_not_that_of_this_one(client: Client) -> None:
    claim = Claim(role="host", wait=True)
    client.core.begin_claim(claim)
    call = client.opens(claim=claim)
    before = call.header.message_id
    client.greet()
    (again,) = client.sends()
    assert again[0].message_id == call.header.message_id > before
    assert client.gets(Kind.REPLY, Claimed(role="host", generation=3), correlation_id=before) == []
    assert client.core.fence(ROLE) is None
    client.gets(Kind.REPLY, Claimed(role="host", generation=0), correlation_id=again[0].message_id)
    assert (call.is_open, client.core.fence(ROLE)) == (False, None)


def test_a_role_that_was_claimed_again_is_announced_when_it_is_granted(client: Client) -> None:
    claim = Claim(role="host", wait=True)
    client.core.begin_claim(claim)
    client.core.reclaim(claim)
    ((header, body),) = client.sends()
    assert decode(body, Claim) == claim
    granted = [Granted(RoleGranted(role="host", generation=3))]
    assert client.gets(Kind.REPLY, Claimed(role="host", generation=3), correlation_id=header.message_id) == granted


def test_a_claim_that_came_to_no_answer_is_taken_back_from_the_broker(client: Client) -> None:
    client.core.begin_claim(Claim(role="host", wait=True))
    client.core.give_up(ROLE)
    ((header, body),) = client.sends()
    assert (header.kind, decode(body, Release)) == (Kind.CONTROL, Release(role="host"))
    assert client.gets(Kind.TELL, RoleGranted(role="host", generation=9)) == []
    client.gets(Kind.REPLY, Done(), correlation_id=header.message_id)
    assert len(client.core.calls) == 0


def test_an_unsubscription_that_was_lost_with_the_connection_is_sent_again(client: Client) -> None:
    client.core.subscriptions[Subscription(topic="t")] = None
    client.core.unsubscribe(Subscription(topic="t"))
    ((first, _),) = client.sends()
    client.greet()
    ((second, body),) = client.sends()
    assert (second.message_id > first.message_id, decode(body, Unsubscribe)) == (True, Unsubscribe(topic="t"))


def test_requests_to_the_broker_keep_their_order_over_many_connections(client: Client) -> None:
    client.core.subscriptions[Subscription(topic="t")] = None
    claim = Claim(role="host", wait=True)
    client.core.reclaim(claim)
    client.sends()
    client.core.unsubscribe(Subscription(topic="t"))
    client.core.reclaim(claim)
    for _ in range(3):
        client.greet()
        sent = client.sends()
        client.core.link_down(1.5)
        assert [decode(body, BrokerRequest) for _, body in sent] == [claim, Unsubscribe(topic="t"), claim]
        assert [header.message_id for header, _ in sent] == sorted(header.message_id for header, _ in sent)


def test_a_call_that_may_be_lost_with_its_callee_s_connection_is_sent_again_to_that_callee(client: Client) -> None:
    call = client.opens("x", is_repeatable=False)
    assert client.gets(Kind.ROUTED, correlation_id=call.header.message_id, to="x@8", flags=Flag.AGAIN) == []
    ((header, _),) = client.sends()
    assert (header.kind, header.message_id, header.to) == (Kind.CALL, call.header.message_id, "x@8")
    (end,) = client.gets(Kind.FAIL, Failure(code="not_delivered", message=""), correlation_id=header.message_id)
    assert (type(end), type(end.error)) == (End, OutcomeUnknownError)


def test_one_word_of_the_broker_binds_several_calls(client: Client) -> None:
    calls = [client.opens("role:host") for _ in range(3)]
    first, *others = (call.header.message_id for call in calls)
    client.gets(Kind.ROUTED, Routed(message_ids=tuple(others)), correlation_id=first, to="x@8")
    assert [call.bound_to for call in calls] == ["x@8"] * 3


def test_of_a_call_that_ended_the_broker_is_told_that_nobody_waits(client: Client) -> None:
    call = client.opens("x")
    client.core.calls.close(call.header.message_id)
    client.gets(Kind.ROUTED, correlation_id=call.header.message_id, to="x@8", flags=Flag.AGAIN)
    ((header, body),) = client.sends()
    assert (header.kind, header.to, header.correlation_id) == (Kind.DONE, "x@8", call.header.message_id)
    assert decode(body, Arrived) == Arrived(message_ids=(call.header.message_id,))


def test_not_delivered_from_a_callee_is_about_another_call(client: Client) -> None:
    call = client.opens("x")
    failure = Failure(code="not_delivered", message="mine")
    (end,) = client.gets(Kind.FAIL, failure, sender="x", correlation_id=call.header.message_id)
    assert (type(end.error), end.error.message) == (OutcomeUnknownError, "mine")


def test_the_end_of_a_watched_peer_is_handed_over_once(client: Client) -> None:
    client.core.watches["x"] = 0
    message = Terminated(address="x", reason=GoneReason.EXITED)
    assert client.gets(Kind.TELL, message, epoch="zero") == [Gone(message)]
    assert client.gets(Kind.TELL, message) == []


def test_a_fence_follows_its_call_over_two_brokers(client: Client) -> None:
    client.core.begin_claim(Claim(role="host"))
    client.core.note_claimed(Claimed(role="host", generation=3))
    header = Header(kind=Kind.CALL, message_id=client.core.next_id(), to="x", fence=client.core.fence(ROLE))
    call = PendingCall(header, b"", object(), is_repeatable=True)
    client.core.calls.open(call)
    client.core.hand_over(pack(header), call, lambda _: True)
    for epoch, generation in (("two", 6), ("three", 7)):
        client.greet(epoch, HeldRole(role="host", generation=generation))
        assert [each.fence for each, _ in client.sends()] == [Fence(epoch, generation)]
