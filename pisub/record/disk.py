"""Every call by which the record changes the disk: one place, so that a test can stand before each of them.

Owns the calls, in the order in which they are made, and nothing of what they mean: which file is written when, and
what a failure leaves, is decided by its callers. ``os`` is called directly where the record is only read.
"""

from __future__ import annotations

import contextlib
import enum
import os
from collections.abc import Callable, Generator
from typing import ClassVar


class Operation(enum.StrEnum):
    """What is about to be done."""

    CREATE = "create"
    WRITE = "write"
    SYNC = "sync"
    LINK = "link"
    RENAME = "rename"
    UNLINK = "unlink"
    TRUNCATE = "truncate"
    MAKE_DIR = "make-dir"
    REMOVE_DIR = "remove-dir"


#: Told of each operation before it is made, with the name that the file has or gets. What it raises is raised to the
#: caller instead of the operation.
Observer = Callable[[Operation, str], None]


class Disk:
    """Who watches this process's operations. A process has one disk, so this is one place and has no instances."""

    _observer: ClassVar[Observer | None] = None

    @classmethod
    @contextlib.contextmanager
    def observed_by(cls, observer: Observer) -> Generator[None]:
        """Have ``observer`` called before each operation, in all threads, until the end of the block.

        For tests: one that ends the process, looks at the files, or refuses like a full disk.
        """
        before, cls._observer = cls._observer, observer
        try:
            yield
        finally:
            cls._observer = before

    @classmethod
    def announce(cls, operation: Operation, name: str) -> None:
        """Tell the observer, if there is one."""
        if cls._observer is not None:
            cls._observer(operation, name)


def create(name: str, flags: int, mode: int, *, directory: int, final: str | None = None) -> int:
    """Open a file that may have to be made. ``final`` is the name that a temporary one will get."""
    Disk.announce(Operation.CREATE, final or name)
    return os.open(name, flags, mode, dir_fd=directory)


def write(descriptor: int, data: bytes | memoryview, *, name: str) -> int:
    """Write once; return how many bytes were taken."""
    Disk.announce(Operation.WRITE, name)
    return os.write(descriptor, data)


def sync(descriptor: int, *, name: str) -> None:
    """Flush a file, or a directory's names, to the disk."""
    Disk.announce(Operation.SYNC, name)
    os.fsync(descriptor)


def link(source: str, name: str, *, directory: int) -> None:
    """Give a file a second name, if nothing has it."""
    Disk.announce(Operation.LINK, name)
    os.link(source, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)


def rename(source: str, name: str, *, directory: int) -> None:
    """Give a file another name, over what has it."""
    Disk.announce(Operation.RENAME, name)
    os.rename(source, name, src_dir_fd=directory, dst_dir_fd=directory)


def unlink(name: str, *, directory: int, final: str | None = None) -> None:
    """Take a name away. ``final`` is the name that a temporary one stood for."""
    Disk.announce(Operation.UNLINK, final or name)
    os.unlink(name, dir_fd=directory)


def truncate(descriptor: int, size: int, *, name: str) -> None:
    """Cut a file off."""
    Disk.announce(Operation.TRUNCATE, name)
    os.ftruncate(descriptor, size)


def make_dir(name: str, mode: int, *, directory: int) -> None:
    """Make a directory."""
    Disk.announce(Operation.MAKE_DIR, name)
    os.mkdir(name, mode, dir_fd=directory)


def remove_dir(name: str, *, directory: int) -> None:
    """Remove an empty directory."""
    Disk.announce(Operation.REMOVE_DIR, name)
    os.rmdir(name, dir_fd=directory)
