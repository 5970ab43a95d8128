"""Where a child program's output goes: files with a bound, and a result text that is small or in a file.

Blocking writes to the page cache; called from the engine's thread alone.
"""

from __future__ import annotations

import hashlib
import os
from typing import BinaryIO

_PRIVATE_FILE = 0o600


def open_private(path: str, *, is_new: bool = False) -> BinaryIO:
    """Open a file for appending (or from its beginning), 0600 whatever the umask, never through a symlink."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_TRUNC if is_new else os.O_APPEND)
    descriptor = os.open(path, flags, _PRIVATE_FILE)
    os.fchmod(descriptor, _PRIVATE_FILE)
    return os.fdopen(descriptor, "wb", buffering=0)


class BoundedLog:
    """A file that takes the first ``limit`` bytes and then counts what it does not take.

    A full disk ends the file, not the child: what could not be written counts as not taken.
    """

    def __init__(self, path: str, limit: int) -> None:
        self._file = open_private(path)
        self._left = limit
        self.lost_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether nothing more will be taken."""
        return self._left <= 0

    def write(self, data: bytes) -> None:
        """Take what still fits."""
        kept = data[: max(0, self._left)]
        if kept:
            try:
                written = self._file.write(kept) or 0
            except OSError:
                written, self._left = 0, 0
            self._left -= written
            self.lost_bytes += len(kept) - written
        self.lost_bytes += len(data) - len(kept)

    def close(self) -> None:
        """Say at the end of the file how much is missing, and close it."""
        try:
            if self.lost_bytes:
                self._file.write(f"\n[pisub: {self.lost_bytes} more bytes of output were not kept]\n".encode())
        except OSError:
            pass  # the disk that was full for the output may be full for the remark
        finally:
            self._file.close()


class ResultText:
    """A program's standard output as its result: in memory up to ``preview`` bytes, beyond that in a file as well.

    Args:
        path: The file, made only when it is needed.
        preview: How much is kept in memory.
        limit: Bound of the file.
    """

    def __init__(self, path: str, *, preview: int, limit: int) -> None:
        self._path = path
        self._preview = preview
        self._limit = limit
        self._head = bytearray()
        self._file: BoundedLog | None = None
        self._digest = hashlib.sha256()
        self._size = 0

    def write(self, data: bytes) -> None:
        """Take the next piece."""
        room = self._limit - self._size
        if room <= 0:
            return
        data = data[:room]
        self._size += len(data)
        self._digest.update(data)
        if self._file is None and len(self._head) + len(data) > self._preview:
            self._file = BoundedLog(self._path, self._limit)
            self._file.write(bytes(self._head))
        if self._file is not None:
            self._file.write(data)
        if len(self._head) < self._preview:
            self._head += data[: self._preview - len(self._head)]

    def finish(self) -> tuple[str, str, int, str]:
        """Close the file; return the text or its beginning, and the file's path, size and digest ('' and 0 without)."""
        text = self._head.decode("utf-8", "replace")
        if self._file is None:
            return text, "", 0, ""
        self._file.close()
        return text, self._path, self._size, self._digest.hexdigest()
