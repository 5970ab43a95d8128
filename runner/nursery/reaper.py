"""How a runner ended: seen while it is still a zombie, so that its number cannot be somebody else's yet."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
from pathlib import Path
from typing import Final

import msgspec

from pisub.process import ProcessIdentity
from pisub.record.model import ProcessTerminalProof

#: `waitid` in the kernel's table: it fills a rusage without reaping, which neither libc's waitid nor wait4 does.
_WAITID: Final = {"x86_64": 247, "aarch64": 95, "riscv64": 95}
_PEEK: Final = os.WEXITED | os.WNOHANG | os.WNOWAIT
_PR_SET_CHILD_SUBREAPER: Final = 36


class Runner(msgspec.Struct, frozen=True):
    """A runner that was forked here. ``home`` and ``runtime_dir`` are its launch's."""

    run_id: str
    home: str
    runtime_dir: str
    process: ProcessIdentity


class Usage(msgspec.Struct, frozen=True):
    """What a process and its reaped children used."""

    user_s: float
    system_s: float
    max_rss_kib: int


class Death(msgspec.Struct, frozen=True):
    """The end of one runner. Exactly one of ``exit_code`` and ``signal`` is set.

    ``adopted`` are the processes that became ours by it: what it left that had no other parent any more.
    ``is_out_of_memory`` is the kernel's word that it killed for want of memory.
    """

    runner: Runner
    exit_code: int | None
    signal: str | None
    usage: Usage | None
    adopted: tuple[ProcessIdentity, ...] = ()
    is_out_of_memory: bool = False


class _Timeval(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("microseconds", ctypes.c_long)]


class _Rusage(ctypes.Structure):
    _fields_ = [("user", _Timeval), ("system", _Timeval), ("max_rss", ctypes.c_long), ("rest", ctypes.c_long * 13)]


def become_subreaper() -> None:
    """Adopt the orphans of our runners: their end is then ours to see, and no stranger's."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children() -> list[int]:
    """Return the pids of this process's children; none where the kernel has no such list."""
    try:
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(word) for word in text.split()]


def next_dead() -> int | None:
    """Return the pid of a child that has ended, without reaping it; None when there is none."""
    try:
        found = os.waitid(os.P_ALL, 0, _PEEK)
    except ChildProcessError:
        return None
    return None if found is None else found.si_pid


def is_dead(pid: int) -> bool:
    """Whether a child has ended. It is not reaped."""
    try:
        return os.waitid(os.P_PID, pid, _PEEK) is not None
    except ChildProcessError:
        return False


def observe(runner: Runner) -> Death:
    """Say how a runner that has ended did so. It is not reaped."""
    pid = runner.process.pid
    found = os.waitid(os.P_PID, pid, _PEEK)
    assert found is not None
    usage = _usage(pid)
    if found.si_code == os.CLD_EXITED:
        return Death(runner, found.si_status, None, usage)
    return Death(runner, None, signal_name(found.si_status), usage)


def release(pid: int) -> int:
    """Reap a child that has ended; return its wait status."""
    return os.waitpid(pid, 0)[1]


def proof_of(death: Death, *, are_orphans_left: bool, now_ms: int) -> ProcessTerminalProof:
    """Return what the record says of a death. It is ``observed`` only when nothing of the run's tree was left."""
    usage = death.usage
    return ProcessTerminalProof(
        run_id=death.runner.run_id,
        state="unknown" if are_orphans_left else "observed",
        reason="process-tree-unverified" if are_orphans_left else None,
        process=death.runner.process,
        observed_at=now_ms,
        exit_code=death.exit_code,
        signal=death.signal,
        is_out_of_memory=death.is_out_of_memory,
        user_s=None if usage is None else usage.user_s,
        system_s=None if usage is None else usage.system_s,
        max_rss_kib=None if usage is None else usage.max_rss_kib,
    )


def signal_name(number: int) -> str:
    """Return ``SIGKILL`` for 9, ``SIG40`` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def _usage(pid: int) -> Usage | None:
    number = _WAITID.get(platform.machine())
    if number is None or platform.system() != "Linux":
        return None
    filled = _Rusage()
    failed = ctypes.CDLL(None).syscall(number, os.P_PID, pid, None, _PEEK, ctypes.byref(filled))
    if failed:
        return None
    return Usage(
        filled.user.seconds + filled.user.microseconds / 1e6,
        filled.system.seconds + filled.system.microseconds / 1e6,
        filled.max_rss,
    )
