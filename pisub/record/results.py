"""How a run ended: first pending, then public. The public one is create-once and never removed by delivery."""

from __future__ import annotations

from pisub.record.atomic import encode_record, move, read_record, read_survivor, remove, replace, write_new
from pisub.record.layout import RunPaths
from pisub.record.model import RunResult


def write_pending(paths: RunPaths, result: RunResult) -> None:
    """Write the result where only readers that know about ends look. Only the holder of ``run.lock`` may.

    Raises:
        OSError: The disk is full, or the like; an older pending result stays.
    """
    replace(paths.pending_result, encode_record(result), fsync=paths.fsync)


def publish_result(paths: RunPaths, result: RunResult) -> bool:
    """Write the result, once, and remove the pending one. False when there was a result: it stays.

    Raises:
        OSError: The disk is full, or the like; a pending result stays.
    """
    is_first = write_result(paths, result)
    drop_pending(paths)
    return is_first


def write_result(paths: RunPaths, result: RunResult) -> bool:
    """Write the result, once. False when there was one: it stays, unless a power cut left only its beginning.

    Only the holder of ``run.lock`` may.
    """
    data = encode_record(result)
    if write_new(paths.result, data, fsync=paths.fsync):
        return True
    _, torn = read_survivor(paths.result, RunResult)
    if torn is None:
        return False
    move(paths.result, "result.torn.json")
    return write_new(paths.result, data, fsync=paths.fsync)


def drop_pending(paths: RunPaths) -> None:
    """Remove the pending result, once it is public."""
    remove(paths.pending_result)


def read_result(paths: RunPaths) -> RunResult | None:
    """Read the public result; None where the run has none.

    Raises:
        RecordCorruptError: It does not parse.
    """
    return read_record(paths.result, RunResult)


def read_pending(paths: RunPaths) -> RunResult | None:
    """Read the pending result; None where there is none.

    Raises:
        RecordCorruptError: It does not parse.
    """
    return read_record(paths.pending_result, RunResult)
