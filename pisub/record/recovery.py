"""A revival for a message that met no answer: one claim per run, and what it led to. Create-once files.

The claim stays where the pause was not confirmed, so that a pause that comes late cannot be revived twice.
"""

from __future__ import annotations

from pathlib import Path

from pisub.errors import RecordError
from pisub.process import ProcessIdentity
from pisub.protocol.base import Record
from pisub.record.atomic import encode_record, read_record, remove, write_new
from pisub.record.dirs import make_dir
from pisub.record.layout import RunPaths
from pisub.record.steering import encoded_id
from pisub.runs.receipts import Recovery


class RecoveryClaim(Record, frozen=True, kw_only=True, omit_defaults=False):
    """``steer-recovery/claim.json`` and ``<id>.message.json``: who revives the run, and for which message."""

    request_id: str
    committed_at: int
    by: ProcessIdentity


class Recovered(Record, frozen=True, kw_only=True, omit_defaults=False):
    """``steer-recovery/<id>.recovered.json``: the run that was started instead."""

    request_id: str
    replacement_run_id: str
    at: int


def claim_recovery(paths: RunPaths, claim: RecoveryClaim) -> bool:
    """Take the one revival of a run. False when somebody has.

    Raises:
        OSError: The disk is full, or the like.
    """
    make_dir(paths.steer_recovery)
    if not write_new(_claim(paths), encode_record(claim), fsync=paths.fsync):
        return False
    write_new(_marker(paths, claim.request_id), encode_record(claim), fsync=False)
    return True


def drop_recovery(paths: RunPaths, request_id: str) -> None:
    """Give the revival up: nothing was done for it."""
    remove(_marker(paths, request_id))
    remove(_claim(paths))


def record_recovered(paths: RunPaths, recovered: Recovered) -> None:
    """Say which run was started instead."""
    write_new(_outcome(paths, recovered.request_id), encode_record(recovered), fsync=False)


def read_recovery(paths: RunPaths, request_id: str) -> Recovery | None:
    """Read what is known of a revival for a message; None where there is none."""
    try:
        claim = read_record(_marker(paths, request_id), RecoveryClaim)
        recovered = read_record(_outcome(paths, request_id), Recovered)
    except (RecordError, OSError):
        return None
    if claim is None:
        return None
    return Recovery(
        committed_at=claim.committed_at,
        replacement_run_id=None if recovered is None else recovered.replacement_run_id,
    )


def _claim(paths: RunPaths) -> Path:
    return paths.steer_recovery / "claim.json"


def _marker(paths: RunPaths, request_id: str) -> Path:
    return paths.steer_recovery / f"{encoded_id(request_id)}.message.json"


def _outcome(paths: RunPaths, request_id: str) -> Path:
    return paths.steer_recovery / f"{encoded_id(request_id)}.recovered.json"
