"""Answers and messages on topics that others observe: what they are to a client that did not ask."""

from typing import Any

import pytest

from pisub.client.bus_callee import Callee
from pisub.client.bus_calls import PendingCall
from pisub.client.bus_core import BusCore
from pisub.client.bus_handlers import Handlers
from pisub.client.bus_hello import Identity
from pisub.client.bus_receive import Receiver
from pisub.process import ProcessIdentity
from pisub.protocol.base import Message
from pisub.protocol.codec import encode, pack, pack_stamp
from pisub.protocol.delivery import Header, Kind, Stamp
from pisub.protocol.session import Done, Failure, PeerKind, Subscription


class Client:
    """A core and its receiver, with one call open."""

    def __init__(self) -> None:
        self.core = BusCore(Identity(kind=PeerKind.CLIENT, address="me", incarnation=5, process=ProcessIdentity(pid=1)))
        self.handlers = Handlers(lambda *_: None)
        callee = Callee(self.core, self.handlers, post=_never, spawn=_never, report=print)
        self.answered: list[PendingCall] = []
        self.receiver = Receiver(self.core, callee, lambda call, _: self.answered.append(call))
        self.call = PendingCall(Header(kind=Kind.CALL, message_id=self.core.next_id(), to="x"), b"", object())
        self.core.calls.open(self.call)

    def gets(self, kind: int, body: Message, *, sender: str = "", **header: Any) -> Any:
        stamp = Stamp(sender=sender, incarnation=8 if sender else 0, epoch="one")
        return list(self.receiver.receive(pack_stamp(stamp), pack(Header(kind=kind, **header), encode(body)), 2.0))


def _never(*_: object) -> None:
    raise AssertionError("nobody calls this client")


@pytest.fixture
def client() -> Client:
    return Client()


def test_a_copy_of_another_s_answer_is_for_observers_and_ends_no_call_of_ours(client: Client) -> None:
    number = client.call.header.message_id
    copy = {"sender": "x", "correlation_id": number, "topic": "t:reply:7", "to": "another"}
    assert client.gets(Kind.REPLY, Done(), **copy) == []
    assert client.gets(Kind.FAIL, Failure(code="c", message="m"), **copy) == []
    assert client.core.calls.get(number) is client.call
    assert client.receiver.ignored == 2, "nobody here observes the topic"
    seen: list[Any] = []
    client.handlers.add_subscription(Subscription(topic="t:", is_prefix=True), seen.append)
    assert client.gets(Kind.REPLY, Done(), **copy) == []
    assert [(each.topic, each.sender.address, each.decode(Done)) for each in seen] == [("t:reply:7", "x", Done())]
    assert client.gets(Kind.REPLY, Done(), sender="x", correlation_id=number, topic="t:reply:7", to="me") == []
    assert client.answered == [client.call]
    assert len(seen) == 2, "who observes and asks sees its own answer as well"
    assert client.receiver.ignored == 2


def test_what_the_broker_publishes_goes_to_the_handlers(client: Client) -> None:
    seen: list[Any] = []
    client.handlers.add_subscription(Subscription(topic="pisub:broker:trace"), seen.append)
    assert client.gets(Kind.PUBLISH, Done(), topic="pisub:broker:trace") == []
    assert [(each.sender.address, each.decode(Done)) for each in seen] == [("", Done())]
