"""The limits under which a process runs, as far as one that starts another must think of them.

A daemon is started by whoever needs it first and serves everybody: the soft limits of that one are nobody else's, so
it raises its own to the hard ones. A runner gets those of the process that launched it.
"""

from __future__ import annotations

import contextlib
import resource
import sys
from collections.abc import Mapping
from typing import Final

#: Those that would end a daemon, or keep it from writing or forking. Descriptors are dealt with apart, by each.
_NAMES: Final = ("AS", "CPU", "DATA", "FSIZE", "NPROC")


def raise_soft_limits(*, descriptors: bool = False) -> None:
    """Raise this process's soft limits to its hard ones, which only root could exceed; descriptors where asked."""
    for name in (*_NAMES, "NOFILE") if descriptors else _NAMES:
        _set(name, resource.RLIM_INFINITY)


def hard_limit_of_descriptors() -> int:
    """Return how many descriptors this process may ever have; lowered, it stays so."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def soft_limits() -> dict[str, int]:
    """Return this process's soft limits by name, without the unlimited ones."""
    found = {name: resource.getrlimit(_number(name))[0] for name in _NAMES}
    return {name: limit for name, limit in found.items() if limit != resource.RLIM_INFINITY}


def take_soft_limits(limits: Mapping[str, int]) -> None:
    """Make another process's soft limits this one's, as far as its hard ones let it; those not named become those."""
    for name in _NAMES:
        _set(name, limits.get(name, resource.RLIM_INFINITY))


def _set(name: str, wanted: int) -> None:
    number = _number(name)
    _, hard = resource.getrlimit(number)
    if wanted == resource.RLIM_INFINITY or (hard != resource.RLIM_INFINITY and wanted > hard):
        wanted = hard
    with contextlib.suppress(OSError, ValueError):  # a system that refuses: the process goes on under what it has
        resource.setrlimit(number, (wanted, hard))


def _number(name: str) -> int:
    return int(getattr(resource, f"RLIMIT_{name}"))
