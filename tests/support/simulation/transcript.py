"""One line for each frame, for a person who reads a history."""

from __future__ import annotations

from typing import Any

import msgspec

from pisub.protocol.delivery import Header, Kind

_KINDS = {value: name for name, value in vars(Kind).items() if isinstance(value, int)}


def described(header: Header, body: bytes) -> str:
    """Return a frame as a line."""
    content: dict[str, Any] = dict(msgspec.msgpack.decode(body)) if body else {}
    content.pop("process", None)
    content.pop("broker", None)
    parts = [_KINDS.get(header.kind, str(header.kind))]
    if header.message_id:
        parts.append(f"#{header.message_id}")
    if header.correlation_id:
        parts.append(f"re #{header.correlation_id}")
    if header.to:
        parts.append(f"to {header.to}")
    if header.topic:
        parts.append(f"on {header.topic}")
    if header.fence is not None:
        parts.append(f"as {header.fence.epoch}/{header.fence.generation}")
    return " ".join(parts) + (f" {content}" if content else "")
