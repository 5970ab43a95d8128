"""Writing ``events.jsonl``: whole lines only, in order, bounded.

One process writes a journal, the holder of the run's lock. A failed append is cut back to whole lines; a torn tail is
cut off, and reported, before anything is appended to it. Reading is in ``journal_reader``; its class is here too.
"""

from __future__ import annotations

import os
from typing import Any, Final, Self

import msgspec

from pisub.errors import RecordError
from pisub.paths import PRIVATE_FILE
from pisub.protocol.limits import KIB, MAX_EVENT_LINE_BYTES, MAX_EVENTS_BYTES, MIB
from pisub.record import disk
from pisub.record.dirs import check_descriptor, open_dir, refusal
from pisub.record.journal_reader import JournalReader
from pisub.record.journal_tail import Tail, has_truncation_marker, inspect_tail
from pisub.record.layout import RunPaths
from pisub.record.model import JournalEvent
from pisub.utf8 import without_surrogates

__all__ = ["REPAIRED", "TRUNCATED", "Journal", "JournalReader"]

#: What an observer of the disk is told; the file's own name is the layout's.
_NAME: Final = "events.jsonl"
REPAIRED: Final = "subagent.journal.repaired"
TRUNCATED: Final = "subagent.events.truncated"
#: Kept free below the cap for the one line that says that diagnostics end here (contract, runs 2.4).
_MARKER_BYTES: Final = 512
#: Diagnostics that wait for a disk that takes no bytes; above it new ones are dropped. Lifecycle lines always wait.
_MAX_WAITING_BYTES = 4 * MIB
#: Of each text of an event that is too long for a line, this many characters stay.
_PREVIEW_CHARS = 8 * KIB

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_encode = msgspec.json.Encoder().encode


class Journal:
    """An open journal. Events get their numbers at ``append`` and reach the file at ``flush``."""

    def __init__(self, run_id: str, descriptor: int, tail: Tail, max_bytes: int, *, is_truncated: bool) -> None:
        self.run_id = run_id
        #: Diagnostic events that were not kept, since this journal was opened.
        self.dropped = 0
        #: The newest event: in the file when it was opened, and now.
        self.found_event = tail.last_event
        self.last_event = tail.last_event
        self._descriptor: int | None = descriptor
        self._size = tail.whole_bytes
        self._seq = 0 if tail.last_event is None else tail.last_event.seq
        self._waiting = bytearray()
        self._max_bytes = max_bytes
        self._is_truncated = is_truncated

    @classmethod
    def open(cls, paths: RunPaths, run_id: str, *, now_ms: int = 0, max_bytes: int = MAX_EVENTS_BYTES) -> Self:
        """Open a run's journal for appending, made where it does not exist. Hold the run's lock.

        Args:
            paths: The run.
            run_id: Its id, for the lines.
            now_ms: Unix time in milliseconds, for the line that reports a repair; 0 takes the last event's.
            max_bytes: Diagnostic events end below this size of the file.

        Raises:
            UnsafePathError: The directory or the file is unsafe.
            OSError: It cannot be read or written.
        """
        with open_dir(paths.events.parent) as directory:
            try:
                descriptor = disk.create(paths.events.name, _FLAGS, PRIVATE_FILE, directory=directory)
            except OSError as error:
                raise refusal(paths.events, error) from error
        try:
            check_descriptor(paths.events, descriptor)
            os.fchmod(descriptor, PRIVATE_FILE)
            tail = inspect_tail(descriptor)
            is_near_cap = tail.whole_bytes >= max_bytes - _MARKER_BYTES - MAX_EVENT_LINE_BYTES
            is_truncated = is_near_cap and has_truncation_marker(descriptor, TRUNCATED)
            journal = cls(run_id, descriptor, tail, max_bytes, is_truncated=is_truncated)
            if tail.torn_bytes:
                last_ms = 0 if tail.last_event is None else tail.last_event.ts
                journal.append(REPAIRED, {"bytesRemoved": tail.torn_bytes}, ts=now_ms or last_ms)
        except BaseException:
            os.close(descriptor)
            raise
        return journal

    @property
    def last_seq(self) -> int:
        """Number of the newest event, flushed or not; 0 where there is none."""
        return self._seq

    @property
    def is_waiting(self) -> bool:
        """Whether events wait for a flush."""
        return bool(self._waiting)

    def append(
        self, kind: str, data: dict[str, Any] | None = None, *, ts: int, is_diagnostic: bool = False
    ) -> JournalEvent | None:
        """Add an event. It is in the file after the next successful ``flush``.

        Args:
            kind: The event's ``type``; begins with ``subagent.``.
            data: JSON-compatible. Texts of an event too long for a line are cut, and ``isCut`` is added.
            ts: Unix time in milliseconds.
            is_diagnostic: It may be dropped when the journal is full: output, progress. The first one dropped
                leaves one line that says so. Lifecycle events are never dropped.

        Returns:
            The event with its number; None when it was dropped, which a lifecycle event never is.
        """
        line, event = self._line(kind, data or {}, ts)
        if is_diagnostic and not self._has_room(len(line)):
            self.dropped += 1
            if not self._is_truncated:
                self._is_truncated = True
                marker, event = self._line(TRUNCATED, {"maxBytes": self._max_bytes}, ts)
                self._take(marker, event)
            return None
        self._take(line, event)
        return event

    def flush(self) -> None:
        """Write what waits, as whole lines. Blocks for one write.

        Raises:
            OSError: The disk is full, or the like. Whole lines that fit are in the file, the rest still waits, and
                nothing torn is left: flush again later.
            RecordError: The journal is closed.
        """
        if self._descriptor is None:
            raise RecordError(f"The journal of run {self.run_id} is closed.", code="journal_closed")
        # A torn tail that was there before us, or a cut of our own that failed.
        if os.fstat(self._descriptor).st_size != self._size:
            disk.truncate(self._descriptor, self._size, name=_NAME)
        data = bytes(self._waiting)
        written = 0
        try:
            while written < len(data):
                written += disk.write(self._descriptor, data[written:] if written else data, name=_NAME)
        finally:
            # Whole lines that got through stay: a reader may have seen them.
            whole = data.rfind(b"\n", 0, written) + 1
            if whole != written:
                disk.truncate(self._descriptor, self._size + whole, name=_NAME)
            self._size += whole
            del self._waiting[:whole]

    def close(self) -> None:
        """Close the file; idempotent. What still waits is lost: flush first."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _has_room(self, size: int) -> bool:
        ahead = self._size + len(self._waiting) + size
        return (
            not self._is_truncated
            and ahead <= self._max_bytes - _MARKER_BYTES
            and len(self._waiting) < _MAX_WAITING_BYTES
        )

    def _line(self, kind: str, data: dict[str, Any], ts: int) -> tuple[bytes, JournalEvent]:
        event = JournalEvent(type=kind, seq=self._seq + 1, ts=ts, run_id=self.run_id, data=data)
        try:
            line = _encode(event)
        except UnicodeEncodeError:
            data = without_surrogates(data)
            event = msgspec.structs.replace(event, data=data)
            line = _encode(event)
        if len(line) >= MAX_EVENT_LINE_BYTES:
            event = msgspec.structs.replace(event, data=_shorten(data, len(line)))
            line = _encode(event)
        return line + b"\n", event

    def _take(self, line: bytes, event: JournalEvent) -> None:
        self._seq = event.seq
        self.last_event = event
        self._waiting += line


def _shorten(data: dict[str, Any], line_bytes: int) -> dict[str, Any]:
    """Return the beginning of an event's data that surely fits a line."""
    facts: dict[str, Any] = {"isCut": True, "lineBytes": line_bytes}
    cut = {key: value[:_PREVIEW_CHARS] if isinstance(value, str) else value for key, value in data.items()} | facts
    return cut if len(_encode(cut)) < MAX_EVENT_LINE_BYTES - _MARKER_BYTES else facts
