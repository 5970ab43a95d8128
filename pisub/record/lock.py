"""The lock of a run: who may write its record.

The runner holds it for its life; reconciling takes it first. It is the kernel's (``flock``), so it dies with its
holder, and it excludes writers across pid namespaces. Whether the runner lives is judged elsewhere.
"""

from __future__ import annotations

import fcntl
import os
import time
import weakref
from pathlib import Path
from typing import ClassVar, Self

from pisub.paths import PRIVATE_FILE
from pisub.record import disk
from pisub.record.dirs import check_descriptor, open_dir, refusal

_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
#: flock has no timeout; this often a waiter asks again.
_RETRY_S = 0.01


class RunLock:
    """A held lock. Made by ``acquire`` only; also a context manager that releases."""

    #: Every lock held by this process. A forked child must drop its copies, and a fork hook cannot be unregistered,
    #: so there is one hook that knows them all.
    _held: ClassVar[weakref.WeakSet[RunLock]] = weakref.WeakSet()

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor
        RunLock._held.add(self)

    @classmethod
    def acquire(cls, path: Path, *, wait_s: float = 0.0) -> RunLock | None:
        """Take the lock, made where it does not exist.

        Args:
            path: The lock's file; its directory exists.
            wait_s: How long to wait for another holder. Blocks the calling thread.

        Returns:
            None when another holds it still, in this process or elsewhere.

        Raises:
            FileNotFoundError: The directory does not exist.
            UnsafePathError: The directory or the file is unsafe.
        """
        deadline = time.monotonic() + wait_s
        while True:
            descriptor = _open(path, os.O_CREAT)
            if _try_lock(descriptor, fcntl.LOCK_EX) and _is_still(path, descriptor):
                return cls(path, descriptor)
            os.close(descriptor)
            if time.monotonic() >= deadline:
                return None
            time.sleep(_RETRY_S)

    @property
    def is_held(self) -> bool:
        """Whether this object still holds its lock: not released, not a copy in a forked child."""
        return self._descriptor is not None

    def release(self) -> None:
        """Give the lock up; idempotent."""
        if self._descriptor is None:
            return
        # Unlock first: a child forked between open and its hook could hold the same open file.
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    @classmethod
    def close_in_child(cls) -> None:
        """Drop the copies that a fork made. Closing, not unlocking: the parent's lock is the same open file."""
        for lock in list(cls._held):
            lock._close()
        cls._held.clear()


os.register_at_fork(after_in_child=RunLock.close_in_child)


def is_held(path: Path) -> bool:
    """Tell whether somebody holds the lock; a missing file is not held.

    The look takes the lock, shared, for microseconds: a taker that does not wait may just meet it.

    Raises:
        UnsafePathError: The directory or the file is unsafe.
    """
    try:
        descriptor = _open(path, 0)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _open(path: Path, extra: int) -> int:
    with open_dir(path.parent) as directory:
        try:
            if extra:
                descriptor = disk.create(path.name, _FLAGS | extra, PRIVATE_FILE, directory=directory)
            else:
                descriptor = os.open(path.name, _FLAGS, dir_fd=directory)
        except OSError as error:
            raise refusal(path, error) from error
    try:
        check_descriptor(path, descriptor)
        if extra:
            os.fchmod(descriptor, PRIVATE_FILE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _try_lock(descriptor: int, mode: int) -> bool:
    try:
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether the name still means the file that was locked, and not one made since."""
    try:
        named = path.lstat()
    except FileNotFoundError:
        return False
    locked = os.fstat(descriptor)
    return (named.st_dev, named.st_ino) == (locked.st_dev, locked.st_ino)
