"""A published body that is no message of a known shape: as plain data, for those who check it field by field."""

from __future__ import annotations

import msgspec

from pisub.errors import PisubError
from pisub.protocol.codec import check_depth


def plain_payload(body: bytes) -> object:
    """Return a published body as plain data without the wire's tag; None where it is none."""
    try:
        check_depth(body)
        found = msgspec.msgpack.decode(body)
    except (PisubError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if isinstance(found, dict):
        found.pop("type", None)  # pyright: ignore[reportUnknownMemberType]  # plain data, looked at by its reader
    return found  # pyright: ignore[reportUnknownVariableType]
