"""Directories of the record, and the checks that stand before every use of one.

Every one is opened without following a symlink and must be the user's own; names in it are then used relative to the
descriptor, so nobody can swap the directory between the check and the use.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Generator
from pathlib import Path

from pisub.errors import UnsafePathError
from pisub.paths import PRIVATE_DIR
from pisub.record import disk

_OPEN_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: What opening anything but a file or directory gives: a symlink, something behind one, a socket.
_NOT_FOLLOWED = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO})


@contextlib.contextmanager
def open_dir(path: Path) -> Generator[int]:
    """Open a directory of the record and verify it; the descriptor is closed on exit.

    Raises:
        FileNotFoundError: It does not exist.
        UnsafePathError: It is a symlink, no directory, another user's, or writable by others.
    """
    try:
        descriptor = os.open(path, _OPEN_DIR)
    except OSError as error:
        raise refusal(path, error) from error
    try:
        check_dir_stat(path, os.fstat(descriptor))
        yield descriptor
    finally:
        os.close(descriptor)


def check_dir(path: Path) -> bool:
    """Verify a directory on the way to a file. False when it does not exist.

    Raises:
        UnsafePathError: It is a symlink, no directory, another user's, or writable by others.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise refusal(path, error) from error
    check_dir_stat(path, found)
    return True


def make_dir(path: Path, *, fsync: bool = False) -> bool:
    """Make a directory, 0700 whatever the umask, in a parent that exists. False when it was there and is safe.

    Raises:
        FileNotFoundError: The parent does not exist.
        UnsafePathError: It, or the parent, is unsafe.
    """
    with open_dir(path.parent) as parent:
        try:
            disk.make_dir(path.name, PRIVATE_DIR, directory=parent)
        except FileExistsError:
            check_dir(path)
            return False
        descriptor = os.open(path.name, _OPEN_DIR, dir_fd=parent)
        try:
            os.fchmod(descriptor, PRIVATE_DIR)
        finally:
            os.close(descriptor)
        if fsync:
            disk.sync(parent, name=path.parent.name)
    return True


def list_names(path: Path) -> list[str]:
    """Return the names in a directory, temporary ones left out, in no order; [] when it does not exist.

    Raises:
        UnsafePathError: It is unsafe.
    """
    try:
        with open_dir(path) as descriptor:
            # By the descriptor that was checked, which pathlib cannot.
            return [name for name in os.listdir(descriptor) if not name.startswith(".")]  # noqa: PTH208  # see above
    except FileNotFoundError:
        return []


def check_dir_stat(path: Path, found: os.stat_result) -> None:
    """Refuse what is no private directory of the user's."""
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafePathError(f"{path} is a symlink or no directory: move it away.")
    if found.st_uid != os.geteuid():
        raise UnsafePathError(f"{path} belongs to user {found.st_uid}, not to you.")
    if found.st_mode & 0o022:
        raise UnsafePathError(f"{path} can be written by other users: `chmod 700` it, after a look inside.")


def check_file_stat(path: Path, found: os.stat_result) -> None:
    """Refuse what is no regular file of the user's."""
    if not stat.S_ISREG(found.st_mode):
        raise UnsafePathError(f"{path} is a symlink or no regular file: move it away.")
    if found.st_uid != os.geteuid():
        raise UnsafePathError(f"{path} belongs to user {found.st_uid}, not to you.")


def check_descriptor(path: Path, descriptor: int) -> None:
    """Verify an open file of the record, however it was opened.

    Raises:
        UnsafePathError: No regular file, or another user's.
    """
    check_file_stat(path, os.fstat(descriptor))


def refusal(path: Path, error: OSError) -> Exception:
    """Return what to raise for a failed open: a refusal where no file of ours was there, else the error itself."""
    if error.errno in _NOT_FOLLOWED:
        return UnsafePathError(
            f"{path} is a symlink, or lies behind one, or is no regular file or directory: move it away."
        )
    return error
