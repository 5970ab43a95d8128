"""Which runs the processes of a run wait for: one file for each wait, in the directory of the run that waits.

The runner's clock stands still while those that are waited for wait for a human (``pisub.runs.standstill``). A file is
made by the process that waits and names it; one whose process is gone means nothing, and whoever reads removes it.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Generator, Iterable

from pisub.errors import PisubError
from pisub.process import Liveness, ProcessIdentity, liveness, own_identity
from pisub.protocol.base import Record
from pisub.record.atomic import encode_record, exists, read_record, remove, write_new
from pisub.record.dirs import list_names, make_dir
from pisub.record.layout import RunPaths


class AwaitNote(Record, frozen=True, kw_only=True):
    """``awaits/<name>.json``: a process of the run waits for these."""

    process: ProcessIdentity
    run_ids: tuple[str, ...]


@contextlib.contextmanager
def note_await(paths: RunPaths, run_ids: Iterable[str]) -> Generator[None]:
    """Say, while the block runs, that this process waits for some runs. A disk that refuses costs only the clock.

    Args:
        paths: The run that this process belongs to.
        run_ids: The runs that it waits for.
    """
    process = own_identity()
    path = paths.awaits / f"{process.pid}-{secrets.token_hex(4)}.json"
    is_noted = False
    with contextlib.suppress(OSError, PisubError):
        if exists(paths.dir):
            make_dir(paths.awaits)
            note = AwaitNote(process=process, run_ids=tuple(run_ids))
            is_noted = write_new(path, encode_record(note), fsync=False)
    try:
        yield
    finally:
        if is_noted:
            with contextlib.suppress(OSError, PisubError):
                remove(path)


def awaited_runs(paths: RunPaths) -> frozenset[str]:
    """Return the runs that live processes of a run wait for.

    Raises:
        OSError: The directory cannot be read.
    """
    found: set[str] = set()
    for name in list_names(paths.awaits):
        path = paths.awaits / name
        try:
            note = read_record(path, AwaitNote)
        except PisubError:
            continue
        if note is None:
            continue
        if liveness(note.process) is Liveness.DEAD:
            remove(path)
        else:
            found.update(note.run_ids)
    return frozenset(found)
