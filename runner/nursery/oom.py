"""Whether the kernel ended a process because memory ran out: its own count of such kills, looked at before and after.

A SIGKILL says not who sent it. The kernel counts the processes that it killed for want of memory, for each cgroup
(``memory.events`` of version 2, ``memory.oom_control`` of version 1) and for the machine (``/proc/vmstat``). Where the
count rose between a look shortly before a death and the one after it, that death was such a kill.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_KEY: Final = "oom_kill"


def find_counter(root: Path = Path("/")) -> Path | None:
    """Return the file that counts for this process, nearest first; None where the kernel has none.

    Args:
        root: Where ``proc`` and ``sys`` are.
    """
    return next((path for path in _candidates(root) if read_count(path) is not None), None)


def read_count(path: Path) -> int | None:
    """Return how many processes were killed so far; None where the file does not say."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return None
    for line in lines:
        name, _, number = line.partition(" ")
        if name == _KEY and number.strip().isdigit():
            return int(number)
    return None


def _candidates(root: Path) -> list[Path]:
    found: list[Path] = []
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        lines = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        inside = group.lstrip("/")
        if not controllers:
            found.append(root / "sys/fs/cgroup" / inside / "memory.events")
        elif "memory" in controllers.split(","):
            found.append(root / "sys/fs/cgroup/memory" / inside / "memory.oom_control")
    return [*found, root / "proc/vmstat"]


class OomWatch:
    """Says of deaths by SIGKILL whether they were for want of memory.

    Args:
        counter: The file that counts; None knows of no such death.
    """

    def __init__(self, counter: Path | None) -> None:
        self._counter = counter
        self._seen = self._read()

    def look(self) -> None:
        """Look at the count while nothing of ours is newly dead: what it counted until now is no later death's."""
        self._seen = self._read()

    def explains_a_death(self) -> bool:
        """Whether the kernel killed since the last look. Each kill explains one death."""
        if self._read() <= self._seen:
            return False
        self._seen += 1
        return True

    def _read(self) -> int:
        count = None if self._counter is None else read_count(self._counter)
        return 0 if count is None else count
