"""Which handler gets which message, and that one that fails costs the others nothing."""

from collections.abc import Callable

import pytest

from pisub.client.bus_handlers import Handlers, KindTable, matches
from pisub.client.bus_types import Incoming, Sender, error_of
from pisub.errors import InvalidArgumentError, NotDeliveredError, ProtocolError, RemoteError, RoleTakenError
from pisub.protocol.codec import encode
from pisub.protocol.runs import InboxChanged, InboxRead, RunState
from pisub.protocol.session import Failure, GoneReason, Subscription, Terminated

PEER = Sender("peer", 1)
CHANGED = InboxChanged(run_id="r")
READ = InboxRead(run_id="r", state=RunState.RUNNING)


class Reports:
    def __init__(self) -> None:
        self.errors: list[str] = []

    def __call__(self, what: str, error: Exception) -> None:
        self.errors.append(repr(error))


def body(message: InboxChanged | InboxRead) -> bytes:
    return encode(message)


def fails(*_: object) -> None:
    raise ValueError("a bug")


def test_a_message_goes_to_the_handler_of_its_kind() -> None:
    table: KindTable[str] = KindTable()
    assert table.decode(body(CHANGED)) is None
    table.add(InboxChanged, "changed")
    assert table.decode(body(CHANGED)) == (CHANGED, "changed")
    assert table.decode(body(READ)) is None
    table.add(InboxRead, "read")
    assert table.decode(body(READ)) == (READ, "read")


def test_a_known_type_that_does_not_decode_is_an_error_and_not_an_unknown_type() -> None:
    table: KindTable[str] = KindTable()
    table.add(InboxChanged, "changed")
    with pytest.raises(ProtocolError):
        table.decode(b"\x81\xa4type\xb3pisub:inbox-changed")
    with pytest.raises(ProtocolError):
        table.decode(b"\xc1")


def test_a_kind_is_answered_by_one_handler() -> None:
    table: KindTable[str] = KindTable()
    table.add(InboxChanged, "one")
    with pytest.raises(InvalidArgumentError):
        table.add(InboxChanged, "two")


def test_every_handler_of_a_told_kind_gets_it_also_behind_one_that_fails() -> None:
    reports = Reports()
    handlers = Handlers(reports)
    got: list[tuple[object, Sender]] = []
    handlers.add_tell(InboxChanged, fails)
    handlers.add_tell(InboxChanged, lambda message, sender: got.append((message, sender)))
    assert handlers.tell(body(CHANGED), PEER)
    assert got == [(CHANGED, PEER)]
    assert reports.errors == ["ValueError('a bug')"]


def test_a_told_message_without_a_handler_or_without_sense_is_not_taken() -> None:
    handlers = Handlers(fails)
    assert not handlers.tell(body(CHANGED), PEER)
    handlers.add_tell(InboxRead, fails)
    assert not handlers.tell(b"\xc1", PEER)


@pytest.mark.parametrize(
    ("subscription", "topic", "scope", "wanted"),
    [
        (Subscription(topic="a"), "a", "", True),
        (Subscription(topic="a"), "a", "s", True),
        (Subscription(topic="a"), "ab", "", False),
        (Subscription(topic="a", is_prefix=True), "ab", "", True),
        (Subscription(topic="a", scope="s"), "a", "s", True),
        (Subscription(topic="a", scope="s"), "a", "other", False),
        (Subscription(topic="a", scope="s"), "a", "", False),
    ],
)
def test_a_subscription_wants_its_topic_in_its_scope(
    subscription: Subscription, topic: str, scope: str, *, wanted: bool
) -> None:
    assert matches(subscription, topic, scope) is wanted


def test_the_first_and_the_last_handler_of_a_subscription_are_told_apart() -> None:
    handlers = Handlers(fails)
    subscription = Subscription(topic="t")
    one: Callable[[Incoming], None] = [].append
    two: Callable[[Incoming], None] = [].append
    assert handlers.add_subscription(subscription, one)
    assert not handlers.add_subscription(subscription, two)
    assert not handlers.remove_subscription(subscription, one)
    assert handlers.remove_subscription(subscription, two)
    assert not handlers.remove_subscription(subscription, two)


def test_a_handler_that_was_unsubscribed_by_an_earlier_one_is_not_called() -> None:
    handlers = Handlers(fails)
    subscription = Subscription(topic="t")
    got: list[Incoming] = []
    handlers.add_subscription(subscription, lambda _: handlers.remove_subscription(subscription, got.append) and None)
    handlers.add_subscription(subscription, got.append)
    assert handlers.publish(Incoming("t", "", PEER, body(CHANGED)))
    assert got == []
    assert not handlers.publish(Incoming("other", "", PEER, body(CHANGED)))


def test_the_end_of_a_peer_is_told_once() -> None:
    handlers = Handlers(fails)
    got: list[Terminated] = []
    message = Terminated(address="x", reason=GoneReason.EXITED)
    assert handlers.add_watch("x", got.append)
    assert not handlers.add_watch("x", got.append)
    assert handlers.terminated(message)
    assert not handlers.terminated(message)
    assert got == [message, message]


def test_a_failure_becomes_the_error_of_its_code() -> None:
    taken = error_of(Failure(code="role_taken", message="no", holder="host:1"))
    assert isinstance(taken, RoleTakenError)
    assert taken.holder == "host:1"
    assert isinstance(error_of(Failure(code="not_delivered", message="")), NotDeliveredError)
    own = error_of(Failure(code="their_own", message="text", field="f"))
    assert (type(own), own.code, own.message, own.field) == (RemoteError, "their_own", "text", "f")
