"""``status.json``: where a run stands, as the holder of its lock last said."""

from __future__ import annotations

from pisub.record.atomic import encode_record, read_record, replace
from pisub.record.layout import RunPaths
from pisub.record.model import RunStatus


def write_status(paths: RunPaths, status: RunStatus, fsync: bool | None = None) -> None:
    """Replace the status. Only the holder of ``run.lock`` may.

    Args:
        paths: The run.
        status: The whole new status.
        fsync: Flush it; None flushes a terminal one where the layout flushes at all.

    Raises:
        UnsafePathError: The directory or the file is unsafe.
        OSError: The disk is full, or the like; the old status stays.
    """
    must_last = paths.fsync and status.state.is_terminal if fsync is None else fsync
    replace(paths.status, encode_record(status), fsync=must_last)


def read_status(paths: RunPaths) -> RunStatus | None:
    """Read the status; None before the runner's first.

    Raises:
        RecordCorruptError: It does not parse.
    """
    return read_record(paths.status, RunStatus)
