"""One broker per runtime directory: the lock, the socket's path, the file that says where the broker is.

Owns ``broker.lock``, ``broker.sock`` (its place, not its traffic) and ``broker.json``. Knows nothing of peers.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path
from typing import NoReturn

import msgspec

from pisub.errors import AlreadyRunningError, UnsafePathError
from pisub.launch import BROKER_FILE, BROKER_LOCK, BROKER_SOCKET, BrokerInfo
from pisub.paths import PRIVATE_FILE

#: Opens a name without opening what it names: a socket cannot be opened. macOS has O_EVTONLY for the same.
_PIN = getattr(os, "O_PATH", 0) or getattr(os, "O_EVTONLY", 0)


class Singleton:
    """The right to serve a runtime directory, held by an flock for as long as this object is open."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = -1
        self._lock_id = (0, 0)
        self._socket_id: tuple[int, int] | None = None
        self._socket_pin = -1

    @property
    def socket_path(self) -> Path:
        """Return where the socket lies."""
        return self._directory / BROKER_SOCKET

    def acquire(self) -> None:
        """Take the lock, and make the socket's path free.

        Raises:
            AlreadyRunningError: A live broker holds it.
            UnsafePathError: The lock is no plain file of ours, or something that cannot be replaced lies in the way.
        """
        path = self._directory / BROKER_LOCK
        while True:
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_FILE)
            except OSError as error:
                raise UnsafePathError(f"{path} cannot be used as a lock: {error.strerror}.") from error
            os.fchmod(descriptor, PRIVATE_FILE)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                raise AlreadyRunningError(f"Another broker serves {self._directory}.") from None
            found = os.fstat(descriptor)
            self._lock_id = (found.st_dev, found.st_ino)
            if _file_id(path) == self._lock_id:
                break
            os.close(descriptor)  # the file was replaced between open and flock: another's lock is the real one
        self._lock = descriptor
        self._check_info_path()
        self._clear_socket_path()

    def _clear_socket_path(self) -> None:
        # libzmq unlinks whatever lies at the path that it binds; so look first.
        try:
            found = self.socket_path.lstat()
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(found.st_mode):
            self._refuse(self.socket_path, "no socket")
        self.socket_path.unlink()

    def _check_info_path(self) -> None:
        """See that ``publish`` can write its file: anything but a directory can be replaced."""
        path = self._directory / BROKER_FILE
        if path.is_dir() and not path.is_symlink():
            self._refuse(path, "a directory")

    def _refuse(self, path: Path, what: str) -> NoReturn:
        self.close()
        raise UnsafePathError(f"{path} is in the way and is {what}. It was left alone: move it and start again.")

    def publish(self, info: BrokerInfo) -> None:
        """Say where the broker is: call it once the socket is bound."""
        self.socket_path.chmod(PRIVATE_FILE)
        # Held open: the number of an inode that nobody holds is given to the next file, and that may be the next
        # broker's socket when the directory was deleted under us.
        self._unpin()
        self._socket_pin = os.open(self.socket_path, _PIN | os.O_NOFOLLOW | os.O_CLOEXEC)
        found = os.fstat(self._socket_pin)
        self._socket_id = (found.st_dev, found.st_ino)
        temporary = self._directory / f"{BROKER_FILE}.{os.getpid()}.tmp"
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_FILE
        )
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(info)) + b"\n")
        temporary.replace(self._directory / BROKER_FILE)

    def is_displaced(self) -> bool:
        """Tell whether the directory no longer holds our lock and socket: somebody deleted or replaced them."""
        if _file_id(self._directory / BROKER_LOCK) != self._lock_id:
            return True
        return self._socket_id is not None and _file_id(self.socket_path) != self._socket_id

    def withdraw(self) -> None:
        """No longer say where the broker is. The lock stays. Files that are not ours stay, too."""
        if not self.is_displaced():
            with contextlib.suppress(FileNotFoundError):
                (self._directory / BROKER_FILE).unlink()

    def remove_socket(self) -> None:
        """Remove the socket's file, if it is still ours. Call it before the lock goes."""
        if self._socket_id is not None and _file_id(self.socket_path) == self._socket_id:
            with contextlib.suppress(FileNotFoundError):
                self.socket_path.unlink()

    def close(self) -> None:
        """Remove the lock's file, if it is still ours, and release the lock. Last of all."""
        self._unpin()
        if self._lock >= 0:
            path = self._directory / BROKER_LOCK
            if _file_id(path) == self._lock_id:  # who opened it before this looks at the inode after its flock
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()
            os.close(self._lock)
            self._lock = -1

    def _unpin(self) -> None:
        if self._socket_pin >= 0:
            os.close(self._socket_pin)
            self._socket_pin = -1


def _file_id(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
