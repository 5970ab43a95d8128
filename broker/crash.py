"""The last thing a broker does when it meets a bug of its own: it writes down what led there.

Owns the crash file: what the core was told lately, in a form that a test plays to another core. It holds no body of a
message between peers, and of those to the broker what it needs: names, roles, topics.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from pisub.paths import PRIVATE_DIR, PRIVATE_FILE
from pisub.process import ProcessIdentity
from pisub.protocol.base import Record

from .history import Entry
from .state import Limits

#: Crash files of one directory; a broker that crashes again and again must not fill the disk.
MAX_CRASH_FILES = 16


class CrashReport(Record, frozen=True, kw_only=True):
    """What a broker had been told when a bug ended it.

    Attributes:
        error: The exception.
        started_at: The monotonic time at which the core was made.
        limits: What it was made with.
        entries: What was put into it, in order; the last one was its end. Calls from before the first are missing.
    """

    epoch: str
    error: str
    broker: ProcessIdentity
    started_at: float
    limits: Limits
    entries: tuple[Entry, ...]
    counters: dict[str, int]


def write_report(directory: Path, report: CrashReport) -> Path | None:
    """Write a crash file beside the logs; None where there are enough already, or it cannot be written."""
    path = directory / f"broker-crash-{report.epoch}.json"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        directory.mkdir(mode=PRIVATE_DIR, exist_ok=True)
        if len(list(directory.glob("broker-crash-*.json"))) >= MAX_CRASH_FILES:
            return None
        with os.fdopen(os.open(path, flags, PRIVATE_FILE), "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    except OSError:
        return None
    return path
