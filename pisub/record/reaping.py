"""The second step of removing runs: the files of those that were set aside, and what the indexes say of them.

What it is cut off in, the next reaping finishes: a run's directory goes last, and names everything else.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from pisub.errors import PisubError
from pisub.protocol.runs import RunState
from pisub.record import disk
from pisub.record.atomic import read_record, remove
from pisub.record.dirs import list_names, open_dir
from pisub.record.layout import Layout
from pisub.record.tombstones import run_of, tombstone
from pisub.runs.spec import RunSpec

#: A run that was set aside can be renamed back by hand for so long (contract, runs 2.7).
GRACE_MS = 24 * 3_600_000


class Reaped(msgspec.Struct, frozen=True):
    """One run that was set aside. ``problem`` says why its files are still there; None where they are gone."""

    run_id: str
    problem: str | None = None


def reap(layout: Layout, *, now_ms: int, grace_ms: int = GRACE_MS, is_dry_run: bool = False) -> Iterator[Reaped]:
    """Remove what was set aside longer than ``grace_ms`` ago; yield each. One that cannot be removed holds up none."""
    for run_id in _set_aside(layout):
        path = tombstone(layout, run_id)
        try:
            # A rename changes nothing but this moment, which nobody can set.
            if path.lstat().st_ctime_ns // 1_000_000 > now_ms - grace_ms and grace_ms:
                continue
            if not is_dry_run:
                _forget(layout, run_id, path)
                with open_dir(layout.runs) as directory:
                    _remove_tree(path.name, directory)
        except FileNotFoundError:
            continue  # another reaper was faster
        except (PisubError, OSError) as error:
            yield Reaped(run_id, str(error))
            continue
        yield Reaped(run_id)


def _set_aside(layout: Layout) -> list[str]:
    with contextlib.suppress(FileNotFoundError), open_dir(layout.runs) as descriptor:
        names = os.listdir(descriptor)  # noqa: PTH208  # by the descriptor that was checked
        return sorted(run_id for name in names if (run_id := run_of(name)) is not None)
    return []


def _forget(layout: Layout, run_id: str, path: Path) -> None:
    """Remove a run from the indexes, and its ends from the ledger: nobody can post them again."""
    remove(layout.active / run_id)
    spec = read_record(path / "spec.json", RunSpec)
    if spec is None:
        return  # its submission was never finished, or the files began to go after this was done
    session = layout.session(spec.session_id)
    remove(session.runs / run_id)
    for name in list_names(session.completions):
        if name.startswith(f"{run_id}."):
            remove(session.completions / name)
    for state in RunState:
        remove(session.done / f"{run_id}.{state.value}")


def _remove_tree(name: str, directory: int) -> None:
    """Remove a directory and all in it. No symlink in it is followed."""
    for _, directories, files, descriptor in os.fwalk(name, topdown=False, dir_fd=directory):
        for each in files:
            disk.unlink(each, directory=descriptor)
        for each in directories:
            try:
                disk.remove_dir(each, directory=descriptor)
            except NotADirectoryError:  # a symlink to one
                disk.unlink(each, directory=descriptor)
    disk.remove_dir(name, directory=directory)
