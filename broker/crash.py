"""The last thing a broker does when it meets a bug of its own: it writes down what it was handling.

Owns the crash file. It holds headers and sizes, never a body: enough to make a test of it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pisub.errors import ProtocolError
from pisub.paths import PRIVATE_FILE
from pisub.protocol import codec
from pisub.protocol.base import Record
from pisub.protocol.delivery import Header

#: Crash files of one directory; a broker that crashes again and again must not fill the disk.
MAX_CRASH_FILES = 16


class SeenFrame(Record, frozen=True, kw_only=True):
    """One frame of the last batch: where it came from, and its envelope (None where it did not decode)."""

    route: str
    frame_bytes: int
    header: Header | None = None


class CrashReport(Record, frozen=True, kw_only=True):
    """What a broker was doing when a bug ended it."""

    epoch: str
    error: str
    batch: tuple[SeenFrame, ...]
    events: tuple[str, ...]
    counters: dict[str, int]


def describe(batch: Sequence[tuple[bytes, bytes]]) -> tuple[SeenFrame, ...]:
    """Return the envelopes of a batch."""
    return tuple(SeenFrame(route=route.hex(), frame_bytes=len(frame), header=_header(frame)) for route, frame in batch)


def write_report(directory: Path, report: CrashReport) -> Path | None:
    """Write a crash file beside the logs; None where there are enough already, or it cannot be written."""
    if len(list(directory.glob("broker-crash-*.json"))) >= MAX_CRASH_FILES:
        return None
    path = directory / f"broker-crash-{report.epoch}.json"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(path, flags, PRIVATE_FILE), "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    except OSError:
        return None
    return path


def _header(frame: bytes) -> Header | None:
    try:
        return codec.unpack(frame)[0]
    except ProtocolError:
        return None
