"""Large messages of one bus: what does not fit into a frame goes by a file, and neither end's user notices.

Owns which of the files this client wrote are still wanted. The files themselves are ``pisub.bodies``'.
"""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import Final

import msgspec

from pisub.bodies import (
    BODIES_DIR,
    KEEP_BODY_S,
    MAX_REFERENCED_BYTES,
    BodyReference,
    read_body,
    remove_body,
    sweep_bodies,
    write_body,
)
from pisub.errors import FrameTooLargeError, PisubError, ProtocolError
from pisub.protocol import codec
from pisub.protocol.base import Message
from pisub.protocol.delivery import Flag
from pisub.protocol.limits import MIB

#: What one client keeps written; the oldest goes first. The runtime directory is often in memory.
_MAX_KEPT_BYTES: Final = 64 * MIB


class Bodies:
    """The large bodies that one client sent, and the way to those that it gets."""

    def __init__(self) -> None:
        self._directory: Path | None = None
        self._kept: deque[tuple[float, str, int]] = deque()
        self._kept_bytes = 0

    def follow(self, endpoint: str) -> None:
        """The broker is at this endpoint: large bodies lie beside its socket."""
        self._directory = Path(endpoint.removeprefix("ipc://")).parent / BODIES_DIR

    def encode(self, message: Message) -> tuple[bytes, int]:
        """Encode a body that may be large; returns it, or what stands for it, and the header's flag that says so.

        Raises:
            FrameTooLargeError: It is too large, or is no message that may be.
            ProtocolError: It cannot be encoded.
        """
        try:
            return codec.encode(message), 0
        except FrameTooLargeError:
            if not message.may_be_large or self._directory is None:
                raise
        data = msgspec.msgpack.encode(message)
        if len(data) > MAX_REFERENCED_BYTES:
            name = type(message).__name__
            raise FrameTooLargeError(f"{name} of {len(data)} bytes exceeds {MAX_REFERENCED_BYTES}: send a file's path.")
        self._make_room(len(data))
        sweep_bodies(self._directory)
        try:
            reference = write_body(self._directory, data)
        except OSError as error:
            raise FrameTooLargeError(
                f"{type(message).__name__} goes by a file, which cannot be written: {error.strerror}."
            ) from error
        self._kept.append((time.monotonic() + KEEP_BODY_S, reference.name, len(data)))
        self._kept_bytes += len(data)
        return codec.encode(reference), Flag.REFERENCE

    def resolve(self, body: bytes) -> bytes:
        """Return the body that came by a file; an empty one, which no message is, where it is not there any more."""
        try:
            if self._directory is None:
                return b""
            return read_body(self._directory, codec.decode(body, BodyReference))
        except PisubError:
            return b""

    def forget(self, body: bytes) -> None:
        """What stands for a body was sent, and is not wanted any more."""
        try:
            name = codec.decode(body, BodyReference).name
        except ProtocolError:
            return
        for each in list(self._kept):
            if each[1] == name:
                self._kept.remove(each)
                self._remove(each)

    def close(self) -> None:
        """The client ends. What it sent last may not be read yet: it is left to whoever sweeps."""
        self._make_room(0)

    def _make_room(self, size: int) -> None:
        now = time.monotonic()
        while self._kept and (self._kept[0][0] <= now or self._kept_bytes + size > _MAX_KEPT_BYTES):
            self._remove(self._kept.popleft())

    def _remove(self, kept: tuple[float, str, int]) -> None:
        self._kept_bytes -= kept[2]
        if self._directory is not None:
            remove_body(self._directory, kept[1])
