"""Whether the runner of a run lives, by its identity and its lock. The age of a file says nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pisub.process import Liveness, ProcessIdentity, boot_id, liveness, pid_namespace
from pisub.record.layout import RunPaths
from pisub.record.lock import is_held

_MOUNTS: Final = Path("/proc/self/mountinfo")
#: File systems that another machine can write: a free lock there says nothing about that machine's processes.
_SHARED: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "ceph", "afs", "lustre", "gpfs"})


def runner_liveness(paths: RunPaths, process: ProcessIdentity, *, is_locked: bool | None = None) -> Liveness:
    """Tell whether the process that runs, or ran, a run is alive.

    Its identity decides where it can be looked at. Where it cannot (another pid namespace, a container made anew), a
    free lock proves death: the kernel would hold it for a living runner. What is left is unknown, never dead.

    Args:
        paths: The run.
        process: Its runner, or its submitter.
        is_locked: What the caller knows about the lock; None looks.

    Raises:
        UnsafePathError: The lock's file is unsafe.
    """
    found = liveness(process)
    if found is not Liveness.UNKNOWN:
        return found
    if process.pid <= 0 or process.start_ticks == 0 or not process.boot_id:
        return Liveness.UNKNOWN  # a record without an identity: nothing can be concluded
    is_same_kernel = process.boot_id == boot_id()
    if is_same_kernel and process.pid_namespace == pid_namespace():
        return Liveness.UNKNOWN  # the number means something here, and the kernel would not say what
    if not is_same_kernel and not is_on_local_filesystem(paths.dir):
        return Liveness.UNKNOWN
    locked = is_held(paths.lock) if is_locked is None else is_locked
    return Liveness.UNKNOWN if locked else Liveness.DEAD


def is_on_local_filesystem(path: Path) -> bool:
    """Tell whether only this machine can write here; False where the kernel's list of mounts does not say."""
    try:
        device = path.stat().st_dev
        lines = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    wanted = f"{device >> 8 & 0xFFF}:{device & 0xFF | device >> 12 & 0xFFF00}"
    for line in lines:
        head, _, tail = line.partition(" - ")
        if head.split()[2] == wanted:
            kind = tail.split()[0]
            return kind not in _SHARED and not kind.startswith("fuse")
    return False
