"""Files of agents' folders: which there are, and their bytes, whatever somebody put there.

This module owns the bounds of what is read. It knows no agent.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from pisub.small_files import file_of

#: An agent's file. The longest seen in the field has 70 KiB.
MAX_AGENT_FILE_BYTES = 1024 * 1024
#: Files of one source, and how deep they may lie.
MAX_AGENT_FILES = 2_000
MAX_FOLDER_DEPTH = 8

_NOT_ENTERED = frozenset({"__pycache__", ".git", "node_modules"})


def walk_folder(folder: Path, *, only_agents: bool = True) -> Iterator[Path]:
    """Yield a folder's files in a stable order. Directories behind a symlink are not entered.

    Args:
        folder: May itself be a symlink. A missing one has no files.
        only_agents: Only `*.md`, without the `*.chain.md` of another tool.

    Raises:
        OSError: A directory cannot be listed.
    """
    pending = [(folder, 0)]
    while pending:
        directory, depth = pending.pop()
        try:
            with os.scandir(directory) as listing:
                entries = sorted(listing, key=lambda entry: os.fsencode(entry.name))
        except (FileNotFoundError, NotADirectoryError):
            continue
        deeper: list[tuple[Path, int]] = []
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if depth < MAX_FOLDER_DEPTH and entry.name not in _NOT_ENTERED:
                    deeper.append((directory / entry.name, depth + 1))
            elif not only_agents or (entry.name.endswith(".md") and not entry.name.endswith(".chain.md")):
                yield directory / entry.name
        pending.extend(reversed(deeper))


def read_bounded(path: Path, limit: int) -> bytes:
    """Read a regular file of at most ``limit`` bytes; a FIFO or device never blocks.

    Raises:
        OSError: It cannot be read, is no regular file, or is longer.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with file_of(descriptor) as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, "not a regular file")
        if found.st_size > limit:
            raise OSError(0, f"longer than {limit} bytes")
        chunks: list[bytes] = []
        left = limit + 1
        while left > 0 and (chunk := file.read(left)):
            chunks.append(chunk)
            left -= len(chunk)
        if left <= 0:
            raise OSError(0, f"longer than {limit} bytes")
        return b"".join(chunks)


def stamp_of(path: Path) -> tuple[int, ...] | None:
    """Return what changes with a file's content: its inode, size and times; None where it cannot be looked at.

    The change time is among them, which no program can set: an edit that keeps size and modification time is seen.
    """
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
