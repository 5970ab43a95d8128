"""Reading a small file of pisub's own outside the record, whatever lies in its place.

A FIFO or a device there must not hold up whoever looks: looking blocks on nothing.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_small(path: Path, limit: int) -> bytes:
    """Return the first ``limit`` bytes of a regular file.

    Raises:
        FileNotFoundError: Nothing has this name.
        OSError: It cannot be read, or is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        # Before a file object is made of it: that fails on a directory, and leaves the descriptor open.
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
    except BaseException:
        os.close(descriptor)
        raise
    with os.fdopen(descriptor, "rb") as file:
        return file.read(limit)
