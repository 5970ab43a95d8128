"""The file that a result is written to besides the record, where whoever launched the run wants one.

What the child wrote there itself stands. A file that cannot be written fails no run: the result is in the record.
"""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

import msgspec


class Saved(msgspec.Struct, frozen=True):
    """What became of it: ``path`` where it is there, ``problem`` where it is not."""

    path: str = ""
    problem: str = ""


def save_output(path: str, text: bytes, whole_file: str, *, started_at: int) -> Saved:
    """Write a result to a file, whole or not at all.

    Args:
        path: Absolute.
        text: The result, where ``whole_file`` is ''.
        whole_file: A file that has all of a result too long for memory.
        started_at: When the run began, in Unix milliseconds: a file changed since is the child's own.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name[:200]}.{secrets.token_hex(6)}.tmp")
    try:
        if target.is_file() and target.stat().st_mtime_ns // 1_000_000 >= started_at:
            return Saved(path)
        if target.exists() and not target.is_file():
            return Saved(problem=f"{path} is there, and is no file.")
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            if whole_file:
                shutil.copyfile(whole_file, temporary)
            else:
                temporary.write_bytes(text)
            temporary.replace(os.path.realpath(target))
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        return Saved(problem=f"{path} could not be written: {error.strerror}.")
    return Saved(path)
