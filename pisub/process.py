"""Who a process is, so that a pid that was used again is never mistaken for the one that was meant.

A pid alone proves nothing. An identity is the pid with its start time in clock ticks, the boot it belongs to, and the
pid namespace in which the number means something. Three answers exist: alive, dead, unknown; unknown is never dead.
"""

from __future__ import annotations

import enum
import errno
import functools
import os
import signal
import socket
import sys
from pathlib import Path

import msgspec

from pisub.protocol.base import Record

_ZOMBIE_STATES = frozenset("ZXx")
_STOPPED_STATES = frozenset("Tt")


class Liveness(enum.Enum):
    """What can be said about a process."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


class ProcessIdentity(Record, frozen=True, kw_only=True):
    """A process, across pid reuse, reboots and namespaces.

    Attributes:
        pid: Process id, as its own namespace numbers it.
        start_ticks: Start time in clock ticks since boot (``/proc/<pid>/stat`` field 22), or 0 where unknown.
        boot_id: The kernel's id of this boot.
        machine_id: The machine, so that another boot of the same machine can be told from another machine.
        pid_namespace: Inode of the pid namespace; 0 where unknown.
    """

    pid: int
    start_ticks: int = 0
    boot_id: str = ""
    machine_id: str = ""
    pid_namespace: int = 0


class ProcessStat(msgspec.Struct, frozen=True):
    """The fields of ``/proc/<pid>/stat`` that pisub uses."""

    pid: int
    state: str
    parent_pid: int
    group_id: int
    session_id: int
    start_ticks: int


def read_stat(pid: int) -> ProcessStat | None:
    """Read a process's kernel record; None when there is no such process.

    Raises:
        PermissionError: The kernel hides it.
    """
    try:
        raw = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name is in parentheses and may hold spaces and parentheses itself: split after the last one.
    rest = raw[raw.rindex(b")") + 2 :].split()
    return ProcessStat(pid, rest[0].decode(), int(rest[1]), int(rest[2]), int(rest[3]), int(rest[19]))


@functools.cache
def boot_id() -> str:
    """Return the kernel's id of this boot, or '' where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


@functools.cache
def machine_id() -> str:
    """Return an id of this machine that survives a reboot; the host name where there is no machine-id file."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            text = Path(path).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text:
            return text
    return socket.gethostname()


def pid_namespace() -> int:
    """Return the inode of this process's pid namespace, or 0."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def identify(pid: int) -> ProcessIdentity | None:
    """Return the identity of a process that runs now (a zombie does not); None when it does not."""
    try:
        stat = read_stat(pid)
    except PermissionError:
        return ProcessIdentity(pid=pid, boot_id=boot_id(), machine_id=machine_id(), pid_namespace=pid_namespace())
    if stat is None or stat.state in _ZOMBIE_STATES:
        return None
    return ProcessIdentity(
        pid=pid,
        start_ticks=stat.start_ticks,
        boot_id=boot_id(),
        machine_id=machine_id(),
        pid_namespace=pid_namespace(),
    )


def own_identity() -> ProcessIdentity:
    """Return this process's identity. Never cached: a fork makes it another."""
    found = identify(os.getpid())
    if found is None:  # no /proc: say what is known
        return ProcessIdentity(pid=os.getpid(), boot_id=boot_id(), machine_id=machine_id())
    return found


def liveness(identity: ProcessIdentity) -> Liveness:
    """Tell whether the process that ``identity`` names still runs.

    Another boot of this machine, a missing pid, a zombie, or a different start time: dead. Another machine or pid
    namespace, a record without a start time, or a refusal by the kernel: unknown.
    """
    if identity.machine_id != machine_id():
        return Liveness.UNKNOWN
    if identity.boot_id != boot_id():
        return Liveness.DEAD
    if identity.pid_namespace != pid_namespace() or identity.start_ticks == 0 or identity.pid <= 0:
        return Liveness.UNKNOWN
    try:
        stat = read_stat(identity.pid)
    except PermissionError:
        return Liveness.UNKNOWN
    if stat is None:
        return Liveness.DEAD if Path("/proc/self/stat").exists() else Liveness.UNKNOWN
    if stat.state in _ZOMBIE_STATES or stat.start_ticks != identity.start_ticks:
        return Liveness.DEAD
    return Liveness.ALIVE


def is_being_reaped(identity: ProcessIdentity) -> bool:
    """Tell whether a dead process still waits for its parent, and the parent is at work.

    A nursery reaps a runner only after it wrote how the runner ended: until then nobody else has to guess. False when
    the parent is stopped or dead itself, or is the first process (in many containers that one reaps nobody), so nobody
    waits for ever.
    """
    try:
        stat = read_stat(identity.pid)
        parent = None if stat is None else read_stat(stat.parent_pid)
    except PermissionError:
        return False
    if stat is None or stat.state not in _ZOMBIE_STATES or stat.start_ticks != identity.start_ticks:
        return False
    return parent is not None and parent.pid > 1 and parent.state not in _ZOMBIE_STATES | _STOPPED_STATES


def is_suspended(identity: ProcessIdentity) -> bool:
    """Tell whether a living process does nothing because it was stopped, as by SIGSTOP. False where nobody can tell."""
    if liveness(identity) is not Liveness.ALIVE:
        return False
    try:
        stat = read_stat(identity.pid)
    except PermissionError:
        return False
    return stat is not None and stat.start_ticks == identity.start_ticks and stat.state in _STOPPED_STATES


def is_stopped(identity: ProcessIdentity) -> bool:
    """Tell whether a process lives and is stopped (SIGSTOP, a debugger): it does nothing until somebody continues it.

    False where that cannot be told.
    """
    if liveness(identity) is not Liveness.ALIVE:
        return False
    try:
        stat = read_stat(identity.pid)
    except PermissionError:
        return False
    return stat is not None and stat.start_ticks == identity.start_ticks and stat.state in _STOPPED_STATES


def open_pidfd(identity: ProcessIdentity) -> int | None:
    """Open a pidfd for exactly this process; None if it is gone. The caller closes it.

    The identity is verified after opening, so the descriptor cannot belong to a later process with the same pid.

    Raises:
        OSError: The kernel has no pidfd, or no descriptor is left.
    """
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return None
    except OSError as error:
        if error.errno == errno.EINVAL:  # a zombie thread group, or a pid that cannot be
            return None
        raise
    if liveness(identity) is Liveness.DEAD:
        os.close(descriptor)
        return None
    return descriptor


def send_signal(identity: ProcessIdentity, number: signal.Signals) -> bool:
    """Send a signal to exactly this process. False, and nothing is sent, when it is gone or cannot be verified."""
    if liveness(identity) is not Liveness.ALIVE:
        return False
    descriptor = open_pidfd(identity)
    if descriptor is None:
        return False
    try:
        signal.pidfd_send_signal(descriptor, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(descriptor)
    return True


def require_supported_platform() -> None:
    """Refuse platforms without the primitives that the record needs.

    Raises:
        ImportError: On Windows.
    """
    if sys.platform == "win32":
        raise ImportError("pisub needs a POSIX system (Linux, macOS or WSL): Windows has no fork and no flock.")
