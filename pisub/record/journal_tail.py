"""The end of a journal, read backwards: where the last whole line ends, and which event it is."""

from __future__ import annotations

import os

import msgspec

from pisub.protocol.limits import KIB
from pisub.record.model import JournalEvent

_CHUNK_BYTES = 64 * KIB
_decode = msgspec.json.Decoder(JournalEvent).decode


class Tail(msgspec.Struct, frozen=True):
    """What an end looks like.

    Attributes:
        whole_bytes: Size of the file up to and with the last newline.
        torn_bytes: What follows it: the beginning of a line that was never finished.
        last_event: The last line that parses; None where none does.
    """

    whole_bytes: int
    torn_bytes: int
    last_event: JournalEvent | None


def inspect_tail(descriptor: int) -> Tail:
    """Look at the end of an open journal. Reads one chunk of it where the end is sound.

    Raises:
        OSError: It cannot be read.
    """
    size = os.fstat(descriptor).st_size
    start, buffer = size, b""
    whole: int | None = None
    while True:
        if whole is None and (newline := buffer.rfind(b"\n")) >= 0:
            whole = start + newline + 1
        if whole is not None:
            # The first line of the buffer may begin before it, unless the buffer begins the file.
            first = 0 if start == 0 else buffer.find(b"\n") + 1
            for line in reversed(buffer[first : whole - start].split(b"\n")):
                event = parse_line(line)
                if event is not None:
                    return Tail(whole, size - whole, event)
            # Nothing of this parses: keep only the beginning, which the chunk before it may complete.
            buffer = buffer[:first]
        if start == 0:
            return Tail(whole or 0, size - (whole or 0), None)
        step = min(_CHUNK_BYTES, start)
        start -= step
        buffer = os.pread(descriptor, step, start) + buffer


def has_truncation_marker(descriptor: int, kind: str) -> bool:
    """Tell whether a line of this type is in the journal. Reads all of it, in chunks."""
    needle = f'"type":"{kind}"'.encode()
    position, kept = 0, b""
    while chunk := os.pread(descriptor, _CHUNK_BYTES, position):
        position += len(chunk)
        if needle in kept + chunk:
            return True
        kept = chunk[-len(needle) :]
    return False


def parse_line(line: bytes) -> JournalEvent | None:
    """Decode one line, without its newline; None when it is not an event."""
    try:
        return _decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
