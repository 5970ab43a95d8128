"""Several frames in one ZeroMQ message: what a busy connection saves on.

Owns the bundle's bytes: magic and version, how many parts, the length of each, the parts. It must not know what a part
is. From a client the parts are its frames; from the broker they are stamps and frames by turns. Only who said the
capability ``bundles`` (Hello, Welcome) gets one.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import Final

from pisub.errors import ProtocolError
from pisub.protocol.limits import MAX_BUNDLE_PARTS
from pisub.protocol.version import WIRE_VERSIONS

#: What a Hello and a Welcome say of a program that reads bundles.
CAPABILITY: Final = "bundles"
#: How a bundle begins. No frame and no stamp begins so.
PRELUDE: Final = b"psB" + bytes([WIRE_VERSIONS[0]])

_COUNT_AT: Final = len(PRELUDE)


@functools.lru_cache(MAX_BUNDLE_PARTS)
def _head(count: int) -> struct.Struct:
    return struct.Struct(f">{_COUNT_AT}sH{count}I")


def join(parts: Sequence[bytes]) -> bytes:
    """Make a bundle of 1 to ``MAX_BUNDLE_PARTS`` parts."""
    count = len(parts)
    return b"".join((_head(count).pack(PRELUDE, count, *map(len, parts)), *parts))


def split(message: bytes) -> list[bytes]:
    """Return the parts of a message that begins with ``PRELUDE``.

    Raises:
        ProtocolError: It is no bundle: too many parts or none, or lengths that do not fill it exactly.
    """
    count = int.from_bytes(message[_COUNT_AT : _COUNT_AT + 2], "big")
    if not 1 <= count <= MAX_BUNDLE_PARTS:
        raise ProtocolError(f"A bundle has 1 to {MAX_BUNDLE_PARTS} parts.")
    head = _head(count)
    at = head.size
    if len(message) < at:
        raise ProtocolError("The bundle ends within its lengths.")
    parts: list[bytes] = []
    for size in head.unpack_from(message)[2:]:
        end = at + size
        parts.append(message[at:end])
        at = end
    if at != len(message):
        raise ProtocolError("The bundle's lengths are not those of its parts.")
    return parts


def frames_of(message: bytes) -> list[bytes]:
    """Return the frames of what a client sent: the message itself, or what a bundle holds; none of a broken one."""
    if not message.startswith(PRELUDE):
        return [message]
    try:
        return split(message)
    except ProtocolError:
        return []
