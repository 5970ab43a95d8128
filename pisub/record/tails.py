"""The end of a log, for an error message."""

from __future__ import annotations

import os
from pathlib import Path

from pisub.errors import RecordError
from pisub.protocol.limits import KIB
from pisub.record.dirs import check_descriptor, open_dir

_WINDOW_BYTES = 64 * KIB
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def read_tail(path: Path, *, lines: int = 30, chars: int = 4_000) -> str:
    """Return the last lines of a log; '' where it does not exist or cannot be read: it only helps to explain.

    Args:
        path: The log.
        lines: At most this many (contract, runs 3.4).
        chars: At most this many, from the end.
    """
    try:
        with open_dir(path.parent) as directory:
            descriptor = os.open(path.name, _FLAGS, dir_fd=directory)
        try:
            check_descriptor(path, descriptor)
            size = os.fstat(descriptor).st_size
            data = os.pread(descriptor, _WINDOW_BYTES, max(0, size - _WINDOW_BYTES))
        finally:
            os.close(descriptor)
    except (OSError, RecordError):
        return ""
    text = data.decode("utf-8", "replace").strip()
    return "\n".join(text.splitlines()[-lines:])[-chars:]
