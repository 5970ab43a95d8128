"""Reading ``events.jsonl`` while it grows: whole lines, each once, in bounded chunks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pisub.protocol.limits import KIB, MIB
from pisub.record.dirs import check_descriptor, open_dir, refusal
from pisub.record.journal_tail import parse_line
from pisub.record.model import JournalEvent

_CHUNK_BYTES: Final = 64 * KIB
#: A longer line is none of ours: it is skipped without being held in memory (contract, runs 2.4).
MAX_LINE_BYTES: Final = MIB

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class JournalReader:
    """A place in a journal. Holds no file open between reads.

    Attributes:
        skipped: Lines met so far that are no events. They hide nothing but themselves.
        last_seq: Number of the newest event that was returned.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.skipped = 0
        self.last_seq = 0
        self._offset = 0
        #: Inside a line that is too long: everything up to its newline is passed over.
        self._is_passing_over = False

    def read_new(self) -> list[JournalEvent]:
        """Return the events that were appended since the last read; [] when there are none, or no file yet.

        Raises:
            UnsafePathError: The directory or the file is unsafe.
            OSError: It cannot be read; the place is kept.
        """
        return list(self.iter_new())

    def iter_new(self) -> Iterator[JournalEvent]:
        """Yield what ``read_new`` returns, without holding it all in memory."""
        try:
            with open_dir(self.path.parent) as directory:
                descriptor = os.open(self.path.name, _FLAGS, dir_fd=directory)
        except FileNotFoundError:
            return
        except OSError as error:
            raise refusal(self.path, error) from error
        try:
            check_descriptor(self.path, descriptor)
            if os.fstat(descriptor).st_size < self._offset:
                # Lines that a power cut took. The numbers tell what was returned already.
                self._offset = 0
                self._is_passing_over = False
            yield from self._read(descriptor)
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int) -> Iterator[JournalEvent]:
        # _offset is the start of the first line that is not dealt with; ``buffer`` begins there.
        buffer = b""
        while chunk := os.pread(descriptor, _CHUNK_BYTES, self._offset + len(buffer)):
            buffer += chunk
            *lines, rest = buffer.split(b"\n")
            for line in lines:
                self._offset += len(line) + 1
                event = self._take(line)
                if event is not None:
                    yield event
            buffer = rest
            if len(buffer) > MAX_LINE_BYTES or (self._is_passing_over and buffer):
                self._offset += len(buffer)
                self._is_passing_over = True
                buffer = b""

    def _take(self, line: bytes) -> JournalEvent | None:
        if self._is_passing_over:
            self._is_passing_over = False
            self.skipped += 1
            return None
        event = parse_line(line)
        if event is None:
            self.skipped += 1
            return None
        if event.seq <= self.last_seq:
            return None
        self.last_seq = event.seq
        return event
