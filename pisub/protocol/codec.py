"""Between values and bytes. Every check that must come before decoding is here and nowhere else.

Owns the encoders and decoders of the wire. Size is checked before a frame is split, depth before a body is decoded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar, cast

import msgspec

from pisub.errors import FrameTooLargeError, NestingTooDeepError, ProtocolError
from pisub.protocol import checkpoint, delegation, rpc, runs, seams, session
from pisub.protocol.base import Message
from pisub.protocol.delivery import MAGIC, Header, Stamp
from pisub.protocol.limits import MAX_BODY_BYTES, MAX_BODY_DEPTH, MAX_FRAME_BYTES, MAX_HEADER_BYTES
from pisub.protocol.version import WIRE_VERSIONS

T = TypeVar("T")

PRELUDE_BYTES: Final = len(MAGIC) + 3
_PRELUDE: Final = MAGIC + bytes([WIRE_VERSIONS[0]])
#: With the upper byte of the header's length, which is 0 of nearly all.
_SHORT_PRELUDE: Final = _PRELUDE + b"\0"

_encode = msgspec.msgpack.Encoder().encode
_decode_header = msgspec.msgpack.Decoder(Header).decode
_decode_stamp = msgspec.msgpack.Decoder(Stamp).decode

#: Every message that clients exchange through the broker.
PeerMessage = (
    checkpoint.CheckpointMessage
    | delegation.DelegationMessage
    | rpc.RpcMessage
    | runs.RunMessage
    | seams.SeamMessage
    | session.Failure
)


@functools.cache
def _decoder(kind: Hashable) -> Callable[[bytes], Any]:
    return msgspec.msgpack.Decoder(kind).decode


def pack(header: Header, body: bytes = b"") -> bytes:
    """Make a frame.

    Raises:
        FrameTooLargeError: The header or the body is over its bound. Nothing may be sent: libzmq would take the
            next messages down with an oversized one.
    """
    head = _encode(header)
    if len(head) > MAX_HEADER_BYTES:
        raise FrameTooLargeError(f"A header of {len(head)} bytes exceeds {MAX_HEADER_BYTES}: shorten topic or address.")
    if len(body) > MAX_BODY_BYTES:
        raise FrameTooLargeError(
            f"A body of {len(body)} bytes exceeds {MAX_BODY_BYTES}: write it to a file and send the path."
        )
    return b"".join((_PRELUDE, len(head).to_bytes(2, "big"), head, body))


def unpack(frame: bytes) -> tuple[Header, bytes]:
    """Split a frame into its header and its undecoded body.

    The body is copied: at the usual few hundred bytes that is cheaper than a view of it, here and in every later step.

    Raises:
        FrameTooLargeError: Over the bound.
        ProtocolError: Not a frame of this protocol's version.
    """
    peeked = peek_header(frame)
    if peeked is not None:
        return peeked, frame[PRELUDE_BYTES + frame[5] :]
    size = len(frame)
    if size > MAX_FRAME_BYTES:
        raise FrameTooLargeError(f"A frame of {size} bytes exceeds {MAX_FRAME_BYTES}.")
    if not frame.startswith(_PRELUDE) or size < PRELUDE_BYTES:
        raise ProtocolError("Not a pisub frame of this version: expected 'psb', a version byte and a header length.")
    end = PRELUDE_BYTES + (frame[4] << 8 | frame[5])
    if end > size or end - PRELUDE_BYTES > MAX_HEADER_BYTES:
        raise ProtocolError("The frame's header length points beyond the frame or the bound.")
    try:
        header = _decode_header(frame[PRELUDE_BYTES:end])  # to copy 30 bytes is cheaper than to make a view of them
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolError(f"The header does not decode: {error}") from error
    return header, frame[end:]


def peek_header(frame: bytes) -> Header | None:
    """Decode the header of a frame, and no more, as fast as can be.

    Returns:
        None for a frame that ``unpack`` would refuse, and for one whose header has more than 255 bytes: ``unpack`` is
        for these.
    """
    size = len(frame)
    if not PRELUDE_BYTES < size <= MAX_FRAME_BYTES or not frame.startswith(_SHORT_PRELUDE):
        return None
    end = PRELUDE_BYTES + frame[5]
    if end > size:
        return None
    try:
        return _decode_header(frame[PRELUDE_BYTES:end])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def pack_stamp(stamp: Stamp) -> bytes:
    """Encode the broker's own frame."""
    return _encode(stamp)


def unpack_stamp(frame: bytes) -> Stamp:
    """Decode the broker's own frame.

    Raises:
        ProtocolError: It is not one.
    """
    try:
        return _decode_stamp(frame)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolError(f"The stamp does not decode: {error}") from error


def encode(message: Message) -> bytes:
    """Encode a body.

    Raises:
        FrameTooLargeError: It is over ``MAX_BODY_BYTES``.
        ProtocolError: A value cannot be encoded (a lone surrogate, an integer over 64 bits).
    """
    try:
        body = _encode(message)
    except (msgspec.EncodeError, OverflowError, UnicodeEncodeError, TypeError) as error:
        raise ProtocolError(f"{type(message).__name__} cannot be encoded: {error}") from error
    if len(body) > MAX_BODY_BYTES:
        raise FrameTooLargeError(
            f"{type(message).__name__} of {len(body)} bytes exceeds {MAX_BODY_BYTES}: send it as a file's path."
        )
    return body


def decode(body: bytes, kind: type[T]) -> T:
    """Decode a body as ``kind``: a Message class, or a union of them told apart by their tags.

    Raises:
        NestingTooDeepError: Deeper than ``MAX_BODY_DEPTH``.
        ProtocolError: Not such a message.
    """
    check_depth(body)
    try:
        decoded: T = _decoder(cast("Hashable", kind))(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"The body does not decode: {error}") from error
    return decoded


# Bytes that can open a container: fixmap, fixarray, array16, array32, map16, map32.
_OPENERS: Final = frozenset((*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF))
_NOT_OPENERS: Final = bytes(byte for byte in range(256) if byte not in _OPENERS)
# Payload after the type byte, for types whose size does not depend on what follows.
_FIXED: Final = {
    0xC0: 0, 0xC1: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8,
    0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
}  # fmt: skip
# Width of the length field, and bytes beyond the length that follow it (an extension's type).
_SIZED: Final = {0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1),
                 0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0)}  # fmt: skip
_COUNTED: Final = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}


def check_depth(body: bytes, limit: int = MAX_BODY_DEPTH) -> None:
    """Refuse a msgpack value that nests deeper than ``limit``, without decoding and without recursion.

    A body with fewer bytes that could open a container than ``limit`` cannot be too deep: one pass in C decides
    nearly all. An empty container is no level. Truncated or invalid input passes: the decoder names what is wrong.

    Raises:
        NestingTooDeepError: It does.
    """
    if len(body.translate(None, _NOT_OPENERS)) <= limit:
        return
    data, size, at = body, len(body), 0
    open_items: list[int] = []
    while at < size:
        first = data[at]
        at += 1
        items = 0
        if first < 0x80 or first >= 0xE0:
            pass
        elif first < 0x90:
            items = 2 * (first & 15)
        elif first < 0xA0:
            items = first & 15
        elif first < 0xC0:
            at += first & 31
        elif first in _FIXED:
            at += _FIXED[first]
        elif first in _SIZED:
            width, more = _SIZED[first]
            at += width + more + int.from_bytes(data[at : at + width], "big")
        else:
            width, factor = _COUNTED[first]
            items = factor * int.from_bytes(data[at : at + width], "big")
            at += width
        if open_items:
            open_items[-1] -= 1
        if items:
            open_items.append(items)
            if len(open_items) > limit:
                raise NestingTooDeepError(f"The body nests deeper than {limit} levels.")
        while open_items and not open_items[-1]:
            open_items.pop()
