"""Which sessions the record knows."""

from __future__ import annotations

from pisub.errors import PisubError
from pisub.record.atomic import read_record
from pisub.record.dirs import list_names
from pisub.record.layout import Layout
from pisub.record.reader import OnProblem, as_problem
from pisub.record.submit import SessionRecord


def list_sessions(layout: Layout, *, on_problem: OnProblem | None = None) -> list[str]:
    """Return the ids of all sessions, in their order as texts.

    Args:
        layout: The record.
        on_problem: Told the directory's name and the error of each session that cannot be read. It hides no other.
    """
    found: list[str] = []
    for name in list_names(layout.sessions):
        try:
            record = read_record(layout.sessions / name / "session.json", SessionRecord)
        except (PisubError, OSError) as error:
            if on_problem is not None:
                on_problem(name, as_problem(f"Session {name}", error))
            continue
        if record is not None:
            found.append(record.session_id)
    return sorted(found)
