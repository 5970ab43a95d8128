"""Several frames in one message: what is put in comes out, and nothing else is read as a bundle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pisub.errors import ProtocolError
from pisub.protocol import bundle
from pisub.protocol.limits import MAX_BUNDLE_PARTS

PARTS = st.lists(st.binary(max_size=40), min_size=1, max_size=MAX_BUNDLE_PARTS)


def test_a_bundle_is_magic_version_count_lengths_and_parts() -> None:
    assert bundle.join([b"ab", b"", b"c"]) == b"psB\x01\x00\x03" + b"\0\0\0\2" + b"\0\0\0\0" + b"\0\0\0\1" + b"abc"


@given(PARTS)
def test_what_is_put_in_comes_out(parts: list[bytes]) -> None:
    assert bundle.split(bundle.join(parts)) == parts


@given(PARTS, st.data())
def test_a_bundle_that_was_cut_or_grew_is_none(parts: list[bytes], data: st.DataObject) -> None:
    whole = bundle.join(parts)
    cut = data.draw(st.integers(0, len(whole) - 1))
    for message in (whole[:cut], whole + b"x"):
        with pytest.raises(ProtocolError):
            bundle.split(message)


@given(st.binary(max_size=60))
def test_any_bytes_behind_the_prelude_are_parts_or_refused(rest: bytes) -> None:
    message = bundle.PRELUDE + rest
    try:
        parts = bundle.split(message)
    except ProtocolError:
        return
    assert bundle.join(parts) == message


@pytest.mark.parametrize("count", [0, MAX_BUNDLE_PARTS + 1, 65_535])
def test_a_bundle_has_one_part_at_least_and_not_too_many(count: int) -> None:
    with pytest.raises(ProtocolError, match=f"1 to {MAX_BUNDLE_PARTS} parts"):
        bundle.split(bundle.PRELUDE + count.to_bytes(2, "big") + bytes(4 * count))
