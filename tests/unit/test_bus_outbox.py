"""Frames that wait: order, bound, what is dropped for what."""

import pytest

from pisub.client.bus_calls import PendingCall
from pisub.client.bus_outbox import Outbox, Outgoing
from pisub.errors import NotDeliveredError
from pisub.protocol.bundle import split
from pisub.protocol.delivery import Header, Kind, Priority
from pisub.protocol.limits import MAX_BUNDLE_BYTES, MAX_BUNDLE_PARTS


def item(frame: bytes, *, priority: int = Priority.NORMAL, call: PendingCall | None = None) -> Outgoing:
    return Outgoing(frame, Header(kind=Kind.TELL, priority=priority), b"", call)


def frames(outbox: Outbox) -> list[bytes]:
    return [each.frame for each in outbox.take_all()]


def test_what_comes_first_goes_first() -> None:
    outbox = Outbox()
    outbox.push(item(b"1"))
    outbox.push(item(b"2", priority=Priority.CONTROL))
    assert (len(outbox), outbox.waiting_bytes) == (2, 2)
    assert frames(outbox) == [b"1", b"2"]
    assert (len(outbox), outbox.waiting_bytes) == (0, 0)


def test_resent_frames_go_before_all_others_in_their_order() -> None:
    outbox = Outbox(max_bytes=1)
    outbox.push(item(b"3"))
    outbox.put_first([item(b"1"), item(b"2")])
    assert frames(outbox) == [b"1", b"2", b"3"]


def test_a_droppable_frame_without_room_is_dropped_and_counted() -> None:
    outbox = Outbox(max_bytes=4)
    outbox.push(item(b"keep"))
    assert not outbox.push(item(b"x", priority=Priority.DROPPABLE))
    assert (frames(outbox), outbox.dropped) == ([b"keep"], 1)


def test_droppable_frames_make_room_for_others() -> None:
    outbox = Outbox(max_bytes=4)
    outbox.push(item(b"ab", priority=Priority.DROPPABLE))
    outbox.push(item(b"c"))
    assert outbox.push(item(b"de"))
    assert (frames(outbox), outbox.dropped) == ([b"c", b"de"], 1)


def test_a_frame_that_may_not_be_dropped_is_refused_where_there_is_no_room() -> None:
    outbox = Outbox(max_bytes=4)
    outbox.push(item(b"full"))
    with pytest.raises(NotDeliveredError):
        outbox.push(item(b"x", priority=Priority.TERMINAL))
    assert frames(outbox) == [b"full"]


def test_draining_stops_at_the_frame_that_is_refused_and_keeps_it() -> None:
    outbox = Outbox()
    sent: list[bytes] = []
    for frame in (b"1", b"2", b"3"):
        outbox.push(item(frame))
    assert not outbox.drain(lambda frame: frame != b"2" and not sent.append(frame))
    assert (sent, outbox.waiting_bytes) == ([b"1"], 2)
    assert outbox.drain(lambda frame: not sent.append(frame))
    assert (sent, len(outbox)) == ([b"1", b"2", b"3"], 0)


def test_a_call_that_ended_while_it_waited_is_not_sent_and_the_others_are_marked() -> None:
    outbox = Outbox()
    sent: list[bytes] = []
    ended, open_one = (PendingCall(Header(kind=Kind.CALL), b"", None) for _ in range(2))
    outbox.push(item(b"ended", call=ended))
    outbox.push(item(b"open", call=open_one))
    ended.is_open = False
    assert outbox.drain(lambda frame: not sent.append(frame))
    assert (sent, ended.is_sent, open_one.is_sent) == ([b"open"], False, True)
    assert outbox.waiting_bytes == 0


def test_with_a_broker_that_reads_bundles_what_waits_goes_in_one_message_in_order() -> None:
    outbox = Outbox()
    ended = PendingCall(Header(kind=Kind.CALL), b"", None, is_open=False)
    asked = PendingCall(Header(kind=Kind.CALL), b"", None)
    for frame, call in ((b"1", None), (b"2", ended), (b"3", asked)):
        outbox.push(item(frame, call=call))
    sent: list[bytes] = []
    assert outbox.drain(lambda message: sent.append(message) is None, is_bundling=True)
    assert [split(message) for message in sent] == [[b"1", b"3"]]
    assert (asked.is_sent, ended.is_sent, outbox.waiting_bytes) == (True, False, 0)


def test_a_bundle_has_at_most_so_many_frames_and_bytes_and_one_frame_goes_as_it_is() -> None:
    outbox = Outbox()
    large = b"x" * (MAX_BUNDLE_BYTES - 1)
    for frame in (large, b"ab", *[b"y"] * MAX_BUNDLE_PARTS):
        outbox.push(item(frame))
    sent: list[bytes] = []
    assert outbox.drain(lambda message: sent.append(message) is None, is_bundling=True)
    assert sent[0] == large
    assert [split(message) for message in sent[1:2]] == [[b"ab", *[b"y"] * (MAX_BUNDLE_PARTS - 1)]]
    assert sent[2:] == [b"y"]


def test_a_bundle_that_is_refused_stays_in_its_order() -> None:
    outbox = Outbox()
    call = PendingCall(Header(kind=Kind.CALL), b"", None)
    for frame in (b"1", b"2"):
        outbox.push(item(frame, call=call))
    assert not outbox.drain(lambda _: False, is_bundling=True)
    assert (call.is_sent, outbox.waiting_bytes, frames(outbox)) == (False, 2, [b"1", b"2"])
