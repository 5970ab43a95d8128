import msgspec
import pytest

from pisub.errors import FrameTooLargeError, NestingTooDeepError, ProtocolError, UnsupportedVersionError
from pisub.protocol import codec
from pisub.protocol.checkpoint import Answer, AskRequest, AskResult, AskStatus, Question
from pisub.protocol.delivery import Fence, Header, Kind, Priority, Stamp
from pisub.protocol.limits import MAX_BODY_BYTES, MAX_BODY_DEPTH, MAX_FRAME_BYTES
from pisub.protocol.runs import InboxChanged
from pisub.protocol.session import Claim
from pisub.protocol.version import negotiate

HEADER = Header(Kind.CALL, Priority.CONTROL, 7, 0, "s", "", "role:host", Fence("e", 3), 1_500, 1, "t")


def nested(levels: int) -> bytes:
    return b"\x91" * levels + b"\xc0"


def test_a_frame_comes_apart_as_it_was_put_together() -> None:
    header, body = codec.unpack(codec.pack(HEADER, b"payload"))
    assert (header, bytes(body)) == (HEADER, b"payload")


def test_a_stamp_comes_back_as_it_was() -> None:
    stamp = Stamp("run:1", 5, 31, "epoch", 2)
    assert codec.unpack_stamp(codec.pack_stamp(stamp)) == stamp


def test_a_body_is_told_by_its_tag() -> None:
    request = AskRequest(ask_id="a", run_id="r", agent="x", questions=(Question("Which?", options=["a", "b"]),))
    assert codec.decode(codec.encode(request), codec.PeerMessage) == request
    result = AskResult(status=AskStatus.OK, answers=(Answer(value="a", by="host", at=1), None))
    assert codec.decode(codec.encode(result), codec.PeerMessage) == result


def test_keys_are_camel_case_and_unknown_ones_are_ignored() -> None:
    raw = msgspec.msgpack.decode(codec.encode(InboxChanged(run_id="r")))
    assert raw == {"type": "pisub:inbox-changed", "runId": "r"}
    assert codec.decode(msgspec.msgpack.encode(raw | {"later": 1}), InboxChanged) == InboxChanged(run_id="r")


def test_a_body_of_another_family_is_refused() -> None:
    with pytest.raises(ProtocolError):
        codec.decode(codec.encode(Claim(role="host")), codec.PeerMessage)


def test_the_sender_checks_the_size() -> None:
    assert len(codec.pack(HEADER, b"x" * MAX_BODY_BYTES)) <= MAX_FRAME_BYTES
    with pytest.raises(FrameTooLargeError):
        codec.pack(HEADER, b"x" * (MAX_BODY_BYTES + 1))
    with pytest.raises(FrameTooLargeError):
        codec.pack(Header(Kind.TELL, topic="t" * 3_000))
    with pytest.raises(FrameTooLargeError):
        codec.encode(InboxChanged(run_id="r" * MAX_BODY_BYTES))


def test_a_lone_surrogate_is_an_error_of_the_sender() -> None:
    with pytest.raises(ProtocolError):
        codec.encode(InboxChanged(run_id="\ud800"))


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"psb",
        b"psb\x01\0",
        b"PSB\0\0\0",
        b"psb\x09\0\x01\x90",
        b"psb\x01\xff\xff",
        b"psb\x01\0\x05\x90",
        b"psb\x01\0\x01\xc1",
    ],
)
def test_what_is_no_frame_is_said_to_be_none(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        codec.unpack(frame)


def test_a_frame_over_the_bound_is_refused_before_it_is_read() -> None:
    with pytest.raises(FrameTooLargeError):
        codec.unpack(b"psb\x01" + b"\0" * MAX_FRAME_BYTES)


def test_depth_is_bounded_before_decoding() -> None:
    codec.check_depth(nested(MAX_BODY_DEPTH))
    with pytest.raises(NestingTooDeepError):
        codec.check_depth(nested(MAX_BODY_DEPTH + 1))
    with pytest.raises(NestingTooDeepError):
        codec.decode(b"\x81\xa1a" * 100_000 + b"\xc0", InboxChanged)


def test_texts_whose_bytes_look_like_containers_are_not_nesting() -> None:
    codec.check_depth(msgspec.msgpack.encode(["прÜ" * 500, b"\x91" * 300, {"ключ": ["ä" * 40] * 50}]))


def test_empty_containers_do_not_hide_depth() -> None:
    many = b"\x93\x90\x80" * (MAX_BODY_DEPTH + 1) + b"\xc0"
    with pytest.raises(NestingTooDeepError):
        codec.check_depth(many)


def test_the_best_common_version_is_chosen_and_none_is_an_error() -> None:
    assert negotiate((0, 1, 7), (0, 1)) == 1
    with pytest.raises(UnsupportedVersionError, match="speaks"):
        negotiate((9,), (0,))
    with pytest.raises(UnsupportedVersionError):
        negotiate((), (0,))
