"""Any bytes give a value or a protocol error; what goes in comes out."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pisub.errors import NestingTooDeepError, ProtocolError
from pisub.protocol import codec
from pisub.protocol.delivery import Fence, Header

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
numbers = st.integers(0, 2**63 - 1)
headers = st.builds(
    Header, numbers, numbers, numbers, numbers, texts, texts, texts, st.none() | st.builds(Fence, texts, numbers),
    numbers, numbers, texts,
)  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | texts | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=60,
)


def depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0) if value else 0
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0) if value else 0
    return 0


@given(headers, st.binary(max_size=200))
def test_a_frame_round_trips(header: Header, body: bytes) -> None:
    again, rest = codec.unpack(codec.pack(header, body))
    assert (again, bytes(rest)) == (header, body)


@given(st.binary(max_size=300) | st.builds(lambda tail: b"psb\x01" + tail, st.binary(max_size=300)))
def test_any_bytes_are_a_frame_or_a_protocol_error(frame: bytes) -> None:
    try:
        header, _ = codec.unpack(frame)
    except ProtocolError:
        return
    assert isinstance(header, Header)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_body_or_a_protocol_error(body: bytes) -> None:
    try:
        codec.decode(body, codec.PeerMessage)
    except ProtocolError:
        return


@given(values, st.integers(1, 6))
def test_depth_is_found_as_a_walk_over_the_value_finds_it(value: object, limit: int) -> None:
    body = msgspec.msgpack.encode(value)
    try:
        codec.check_depth(body, limit)
    except NestingTooDeepError:
        assert depth(value) > limit
    else:
        assert depth(value) <= limit
