"""The session file of a run: made when it begins, copied when another run goes on with it."""

from __future__ import annotations

import contextlib

from pisub.errors import RefusedError
from pisub.protocol.base import Record
from pisub.record.atomic import write_new
from pisub.record.layout import RunPaths
from pisub.runs.spec import RunSpec
from pisub.session_file import (
    AnySessionLine,
    SessionAnswer,
    SessionHead,
    SessionMessage,
    decode_lines,
    encode_lines,
    read_session_bytes,
)
from pisub.utf8 import without_surrogates


class ResumeClaim(Record, frozen=True, kw_only=True):
    """``resumed.<n>.json`` of the run that is gone on with: create-once, the n-th run that does."""

    source_run_id: str
    run_id: str
    claimed_at: int
    pid: int


def begin_session(paths: RunPaths, spec: RunSpec) -> None:
    """Make the session file of a fresh run; that of a resumed one is there already. A full disk fails no run."""
    task = SessionMessage(kind="task", text=without_surrogates(spec.task))
    head = SessionHead(run_id=spec.run_id, agent=spec.agent.name)
    with contextlib.suppress(OSError):
        write_new(paths.session, encode_lines([head, task]), fsync=False)


def read_session(paths: RunPaths) -> tuple[bytes, list[AnySessionLine]]:
    """Return a run's session, as bytes and as lines.

    Raises:
        RefusedError: There is none, code ``session_missing``.
        UnsafePathError: It is a symlink or no regular file.
        RecordCorruptError: It does not parse.
    """
    data = read_session_bytes(paths.session)
    if not data:
        raise RefusedError(
            f"Run {paths.run_id} left no session file: it cannot be resumed. Run its agent again.",
            code="session_missing",
        )
    return data, decode_lines(data, paths.session)


def continue_session(
    paths: RunPaths, spec: RunSpec, earlier: bytes, *, answers: tuple[SessionAnswer, ...] = ()
) -> None:
    """Write the session file of a run that goes on with another, before it is submitted. Its directory exists."""
    head = SessionHead(run_id=spec.run_id, agent=spec.agent.name, resumed_from=spec.resumed_from or "")
    told = SessionMessage(kind="resume", text=without_surrogates(spec.resume_message))
    write_new(paths.session, earlier + encode_lines([head, told, *answers]), fsync=paths.fsync)
