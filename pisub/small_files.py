"""Reading files that may be anything by now: what has the name is looked at before it is read.

A FIFO or a device in a file's place must not hold up whoever looks, and a directory must not cost a descriptor.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Generator
from pathlib import Path


def read_small(path: Path, limit: int) -> bytes:
    """Return the first ``limit`` bytes of a regular file.

    Raises:
        FileNotFoundError: Nothing has this name.
        OSError: It cannot be read, or is no regular file.
    """
    with file_of(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return file.read(limit) or b""


@contextlib.contextmanager
def file_of(descriptor: int) -> Generator[io.FileIO]:
    """Give an open descriptor as a file for reading, and close it afterwards.

    Of a directory no file can be made: ``os.fdopen`` raises then, and leaves the descriptor open.

    Raises:
        OSError: It is a directory.
    """
    try:
        with io.FileIO(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)
