"""Whether the runner of a run lives, by its identity and its lock. The age of a file says nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from pisub.process import Liveness, ProcessIdentity, boot_id, liveness, pid_namespace
from pisub.record.layout import RunPaths

_MOUNTS: Final = Path("/proc/self/mountinfo")
#: File systems that another machine can write: a free lock there says nothing about that machine's processes.
_SHARED: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "ceph", "afs", "lustre", "gpfs"})


def run_liveness(paths: RunPaths, process: ProcessIdentity, *, is_runner: bool) -> Liveness:
    """Tell whether the process on which a run depends is alive. Call it where the lock is free, or one's own.

    Its identity decides where it can be looked at. Where it cannot, the free lock proves a runner dead: the kernel
    would hold it for a living one, in whatever pid namespace. A submitter holds no lock, but on a local file system
    it cannot outlive its kernel. What is left is unknown, never dead.

    Args:
        paths: The run.
        process: Its runner, or its submitter.
        is_runner: Which of the two.
    """
    found = liveness(process)
    if found is not Liveness.UNKNOWN:
        return found
    if process.pid <= 0 or process.start_ticks == 0 or not process.boot_id:
        return Liveness.UNKNOWN  # a record without an identity: nothing can be concluded
    if process.boot_id != boot_id():
        return Liveness.DEAD if is_on_local_filesystem(paths.dir) else Liveness.UNKNOWN
    if process.pid_namespace == pid_namespace():
        return Liveness.UNKNOWN  # the number means something here, and the kernel would not say what
    return Liveness.DEAD if is_runner else Liveness.UNKNOWN


def is_on_local_filesystem(path: Path) -> bool:
    """Tell whether only this machine can write here; False where the kernel's list of mounts does not say."""
    try:
        device = path.stat().st_dev
        lines = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        head, _, tail = line.partition(" - ")
        if head.split()[2] == wanted:
            kind = tail.split()[0]
            return kind not in _SHARED and not kind.startswith("fuse")
    return False
