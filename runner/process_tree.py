"""The descendants of a runner: found, ended, and seen gone. Linux; elsewhere only what ``/proc`` offers.

The runner is a subreaper, so a descendant whose parents died is its own child. What pisub started for everybody (a
broker, a nursery with other runs) may be a descendant by accident of birth, and is left alone, with all below it.
No signal goes to a process whose identity was not verified after its pidfd was opened.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from pathlib import Path

from pisub.config import RUN_ID_VARIABLE
from pisub.process import ProcessStat, identify, read_stat, send_signal

_PR_SET_CHILD_SUBREAPER = 36
_DEAD_STATES = frozenset("ZXx")
#: A process that forks as fast as it is killed ends the search here; the next look goes on.
_MAX_PASSES = 20
_BROKERS = ([b"broker"], [b"pisub.broker"])
_NURSERIES = ([b"runner", b"nursery"], [b"pisub.runner", b"nursery"])
#: What ``ps`` shows of a runner.
RUNNER_TITLE = b"pisub: run "
_RUN_MARK = f"{RUN_ID_VARIABLE}=".encode()


def become_subreaper() -> bool:
    """Make this process the parent of descendants whose own parents die. False where the kernel cannot."""
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


class ProcessTree:
    """The descendants of this process."""

    def __init__(self) -> None:
        self._root = os.getpid()
        self._asked: set[tuple[int, int]] = set()

    def count(self) -> int:
        """Return how many descendants are alive. Zombies are not; adopted ones are reaped by their pid."""
        if not self._has_children():
            return 0
        alive, zombies = self._walk()
        for stat in zombies:
            if stat.parent_pid == self._root:
                with contextlib.suppress(ChildProcessError):  # its Popen was faster
                    os.waitpid(stat.pid, os.WNOHANG)
        return len(alive)

    def signal(self, *, must_die: bool) -> int:
        """Send SIGTERM once to each, or SIGKILL, in passes until one finds nobody new. Returns how many were sent."""
        number = signal.SIGKILL if must_die else signal.SIGTERM
        seen: set[tuple[int, int]] = set()
        sent = 0
        for _ in range(_MAX_PASSES):
            fresh = [stat for stat in self._walk()[0] if (stat.pid, stat.start_ticks) not in seen]
            if not fresh:
                break
            for stat in fresh:
                key = (stat.pid, stat.start_ticks)
                seen.add(key)
                if not must_die and key in self._asked:
                    continue
                self._asked.add(key)
                identity = identify(stat.pid)
                if identity is not None and identity.start_ticks == stat.start_ticks:
                    sent += send_signal(identity, number)
        return sent

    def _has_children(self) -> bool:
        """Tell, in microseconds, whether there is any child; a walk costs a read per process of the machine."""
        for _ in range(2):  # a child of a dying thread moves to another, which may have been read already
            for thread in Path("/proc/self/task").iterdir():
                try:
                    if (thread / "children").read_bytes():
                        return True
                except FileNotFoundError:
                    if thread.exists():
                        return True  # a kernel without this file
        return False

    def _walk(self) -> tuple[list[ProcessStat], list[ProcessStat]]:
        """Return the live descendants and the zombies among them, from one pass over ``/proc``."""
        children: dict[int, list[ProcessStat]] = {}
        for entry in os.listdir("/proc"):  # noqa: PTH208  # a Path per process of the machine would double the pass
            if not entry.isdigit():
                continue
            try:
                stat = read_stat(int(entry))
            except OSError:
                continue
            if stat is not None:
                children.setdefault(stat.parent_pid, []).append(stat)
        alive: list[ProcessStat] = []
        zombies: list[ProcessStat] = []
        below = list(children.get(self._root, ()))
        while below:
            stat = below.pop()
            if stat.state in _DEAD_STATES:
                zombies.append(stat)
            elif is_daemon(stat):
                continue
            else:
                alive.append(stat)
            below.extend(children.get(stat.pid, ()))
        return alive, zombies


def is_ours(stat: ProcessStat) -> bool:
    """Tell a daemon of ours, or the runner of a run, from what a run started: nobody cleans them up with another."""
    try:
        title = Path(f"/proc/{stat.pid}/cmdline").read_bytes()
    except OSError:
        return False
    return title.startswith(RUNNER_TITLE) or is_daemon(stat)


def is_daemon(stat: ProcessStat) -> bool:
    """Tell a daemon of ours, which this run happened to start, from the run's own: it bears the mark of no run."""
    if stat.session_id != stat.pid:
        return False
    try:
        words = Path(f"/proc/{stat.pid}/cmdline").read_bytes().split(b"\0")
        environ = Path(f"/proc/{stat.pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    if b"-m" not in words or any(entry.startswith(_RUN_MARK) for entry in environ):
        return False
    program = words[words.index(b"-m") + 1 :][:2]
    return program[:1] in _BROKERS or program in _NURSERIES
