"""One process of many starts the broker, the others wait for what becomes of it.

After a broker's death every client looks for the next one in the same moment; each would start an interpreter only to
have it find the broker's own lock taken. Owns that courtesy and its file, no more: which broker serves is decided by
the broker's lock, so nothing depends on this one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import Final, Self

import msgspec

from pisub.paths import PRIVATE_FILE

START_LOCK: Final = "broker.starting"
#: A starter that has not let go after this long is stopped or hangs: start beside it.
PATIENCE_S: Final = 4.0
_FIRST_LOOK_S: Final = 0.01
_LAST_LOOK_S: Final = 0.1
_MAX_BYTES: Final = 16 * 1024


class _Failed(msgspec.Struct):
    """What a starter that failed leaves for those who waited. Monotonic time is the machine's, not a process's."""

    at: float
    message: str


class StartLock:
    """The turn to start. Make it when the wait begins; use it as a context manager, or ``release`` it."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / START_LOCK
        self._since = time.monotonic()
        self._pause = _FIRST_LOOK_S
        self._descriptor = -1
        self._has_failed = False

    def take(self) -> bool:
        """Try to take the turn, without waiting. True also where it is no use to wait for it any longer."""
        if self._descriptor >= 0:
            return True
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(self._path, flags, PRIVATE_FILE)
        except OSError:  # a directory where no file can be made is the broker's to complain of
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return time.monotonic() - self._since >= PATIENCE_S
        self._descriptor = descriptor
        return True

    def pause(self) -> None:
        """Wait a moment before the next look: the more there are who wait, the longer each may."""
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, _LAST_LOOK_S)

    def failed_meanwhile(self) -> str | None:
        """Return what a starter left who failed since this wait began; None where none did."""
        if self._descriptor < 0:
            return None
        try:
            failed = msgspec.json.decode(os.pread(self._descriptor, _MAX_BYTES, 0), type=_Failed)
        except (OSError, msgspec.DecodeError):
            return None
        return failed.message if failed.at > self._since else None

    def leave_failure(self, message: str) -> None:
        """Tell those who wait that starting again would fail again. The next start that succeeds removes it."""
        if self._descriptor < 0:
            return
        self._has_failed = True
        data = msgspec.json.encode(_Failed(at=time.monotonic(), message=message[: _MAX_BYTES // 8]))
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, data, 0)

    def release(self) -> None:
        """Let the next one have its turn. Idempotent."""
        if self._descriptor < 0:
            return
        if not self._has_failed and _is_file(self._path, self._descriptor):
            with contextlib.suppress(OSError):
                self._path.unlink()
        os.close(self._descriptor)
        self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _is_file(path: Path, descriptor: int) -> bool:
    mine = os.fstat(descriptor)
    try:
        found = path.lstat()
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino)
