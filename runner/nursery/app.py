"""What the two commands of the runner program do first.

Light: of many nurseries that are started at once, all but one leave here, before the imports that a runner needs.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pisub.errors import PisubError
from pisub.launch import EXIT_ALREADY_RUNNING
from pisub.launchers.nursery import NurseryPaths
from pisub.paths import PRIVATE_FILE, ensure_private_dir

if TYPE_CHECKING:
    from .parts import Parts

#: Launchers hold the lock for an instant when they look whether somebody has it; a nursery tries for this long.
_LOCK_TRIES: Final = 20
_LOCK_PAUSE_S: Final = 0.01


def main(arguments: list[str], *, load: Callable[[], Parts]) -> int:
    """Run ``nursery --runtime-dir D --key K [--idle-exit-ms N]`` or ``nursery --one``.

    Args:
        arguments: Without the program's name.
        load: Imports what a runner and a coroner need, and returns it; called once, before the first fork.

    Returns:
        The exit code: 0, ``EXIT_ALREADY_RUNNING``, or 1 with a sentence on standard error.
    """
    parser = argparse.ArgumentParser(prog="runner", description="Started by pisub; not by hand.")
    commands = parser.add_subparsers(dest="command", required=True)
    nursery = commands.add_parser("nursery", help="fork runners until there has been none for a while")
    kind = nursery.add_mutually_exclusive_group(required=True)
    kind.add_argument("--one", action="store_true", help="only the one run that standard input describes")
    kind.add_argument("--runtime-dir", type=Path)
    nursery.add_argument("--key", default="")
    nursery.add_argument("--idle-exit-ms", type=int)
    chosen = parser.parse_args(arguments)
    try:
        if chosen.one:
            from .solo import run_one  # noqa: PLC0415  # as below

            return run_one(sys.stdin.buffer, load)
        paths = NurseryPaths(ensure_private_dir(chosen.runtime_dir), chosen.key)
        lock = _take_lock(paths.lock)
        if lock is None:
            return EXIT_ALREADY_RUNNING
        from .daemon import serve  # noqa: PLC0415  # slow: not before it is known that this nursery is the one

        serve(paths, lock, load, idle_exit_ms=chosen.idle_exit_ms)
    except PisubError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    return 0


def _take_lock(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_FILE)
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE_S)
        else:
            return descriptor
    os.close(descriptor)
    return None
