"""What `ps` shows for a process: written over its argument vector, because a fork has its parent's."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Final

_PR_SET_NAME: Final = 15
#: Opened at import: it costs more than its use.
_LIBC: Final = ctypes.CDLL(None)


def set_title(title: str) -> None:
    """Show ``title`` as this process's command line, cut to the room that the old one took. Linux; elsewhere nothing.

    Args:
        title: Never a task or anything else of the user's: every user of the machine can read it.
    """
    area = _argument_area()
    if area is None:
        return
    start, end = area
    text = title.encode("ascii", "replace")[: end - start - 2]
    # A last byte that is not NUL tells the kernel that the title ends at its first NUL (fs/proc/base.c).
    ctypes.memmove(start, text.ljust(end - start - 1, b"\0") + b" ", end - start)
    _LIBC.prctl(_PR_SET_NAME, ctypes.c_char_p(text[:15]), 0, 0, 0)


def _argument_area() -> tuple[int, int] | None:
    try:
        raw = Path("/proc/self/stat").read_bytes()
    except OSError:
        return None
    fields = raw[raw.rindex(b")") + 2 :].split()
    # arg_start and arg_end are fields 48 and 49, counted from 1; the split begins at field 3.
    start, end = int(fields[45]), int(fields[46])
    return (start, end) if 0 < start < end - 4 else None
