"""Which nursery fits a launcher: a digest of all that a fork inherits and no launch can change afterwards."""

from __future__ import annotations

import hashlib
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from pisub.config import interpreter_environment
from pisub.version import __version__

#: Limits whose hard value a process can only lower: a runner must not get another one than its launcher has.
_LIMITS = ("AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "RSS", "STACK")


class Surroundings(msgspec.Struct, frozen=True):
    """What decides whether a process forked from a nursery is like one that the launcher would have started."""

    executable: str
    prefix: str
    version: str
    files: str
    flags: tuple[int | bool, ...]
    encoding: str
    interpreter: dict[str, str]
    hard_limits: dict[str, int]
    user: tuple[int, ...]
    cgroup: str
    namespaces: dict[str, str]

    def key(self) -> str:
        """Return 16 hex digits that name the nursery for these surroundings."""
        data = msgspec.json.encode(msgspec.structs.astuple(self), order="sorted", enc_hook=repr)
        return hashlib.sha256(data).hexdigest()[:16]


def own_surroundings(files: str | None = None) -> Surroundings:
    """Look at this process: a quarter of a millisecond, and some more for the files if their digest is not given."""
    return Surroundings(
        # A text that is not UTF-8 has lone surrogates, which no encoder takes: hence ascii().
        executable=ascii(sys.executable),
        prefix=ascii(sys.prefix),
        version=__version__,
        files=installed_files() if files is None else files,
        flags=tuple(sys.flags),
        encoding=sys.getfilesystemencoding(),
        interpreter={ascii(name): ascii(value) for name, value in interpreter_environment().items()},
        hard_limits={name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[1] for name in _LIMITS},
        user=(os.geteuid(), os.getegid(), *sorted(os.getgroups())),
        cgroup=_read("/proc/self/cgroup"),
        namespaces=_namespaces(),
    )


def installed_files() -> str:
    """Return a digest of the names, sizes and times of pisub's own Python files."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    # In a tree the two programs lie beside the library; in a wheel they are inside it.
    for top in (package, package.parent / "broker", package.parent / "runner"):
        _add_files(str(top), digest.update)
    return digest.hexdigest()[:16]


def _add_files(folder: str, add: Callable[[bytes], None]) -> None:
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in found:
        if entry.name.endswith(".py"):
            status = entry.stat()
            add(f"{entry.path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
        elif entry.name != "__pycache__" and entry.is_dir(follow_symlinks=False):
            _add_files(entry.path, add)


def _namespaces() -> dict[str, str]:
    try:
        with os.scandir("/proc/self/ns") as entries:
            return {entry.name: str(Path(entry.path).readlink()) for entry in entries}
    except OSError:
        return {}


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
