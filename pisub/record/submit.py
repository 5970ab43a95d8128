"""A run comes into being: its directory, its place in the indexes, and then its spec.

The spec is last and create-once: without it there is no run. What is written before it may be left over by a death
and means nothing; so a run can never exist without the marker that keeps it from being forgotten.
"""

from __future__ import annotations

from pisub.protocol.base import Record
from pisub.record.atomic import encode_record, exists, write_new
from pisub.record.dirs import check_dir, make_dir
from pisub.record.layout import Layout, SessionPaths
from pisub.record.tree import note_in_tree
from pisub.runs.spec import RunSpec


class SessionRecord(Record, frozen=True, kw_only=True):
    """``session.json``: which session a directory belongs to."""

    session_id: str


def submit_run(layout: Layout, spec: RunSpec) -> bool:
    """Write a run into the record. After this it exists, whatever becomes of the caller.

    Args:
        layout: Prepared (``Layout.prepare``).
        spec: The whole of what to do.

    Returns:
        False when this id was submitted before; nothing was changed then.

    Raises:
        InvalidIdError: The run id is not an id.
        UnsafePathError: A directory is a symlink or another user's.
        OSError: The disk is full, or the like.
    """
    run = layout.run(spec.run_id)
    if check_dir(run.dir) and exists(run.spec):
        return False
    session = prepare_session(layout, spec.session_id)
    make_dir(run.dir, fsync=layout.fsync)
    for directory in (run.control, run.asks, run.artifacts):
        make_dir(directory)
    write_new(layout.active / spec.run_id, b"", fsync=False)
    write_new(session.runs / spec.run_id, b"", fsync=False)
    note_in_tree(layout, spec)
    return write_new(run.spec, encode_record(spec), fsync=layout.fsync)


def prepare_session(layout: Layout, session_id: str) -> SessionPaths:
    """Make the directories of a session; idempotent.

    Raises:
        InvalidArgumentError: ``session_id`` cannot be one.
        UnsafePathError: A directory is a symlink or another user's.
    """
    session = layout.session(session_id)
    if not exists(session.session_file):
        make_dir(session.dir)
        for directory in (session.runs, session.completions, session.done):
            make_dir(directory)
        # Last: its presence says that the directories are there.
        write_new(session.session_file, encode_record(SessionRecord(session_id=session_id)), fsync=False)
    return session
