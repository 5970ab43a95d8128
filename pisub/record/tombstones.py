"""Where a run lies that was set aside to be removed: beside the others, under a name that no list shows."""

from __future__ import annotations

from pathlib import Path

from pisub.ids import is_id
from pisub.record.layout import Layout

_PREFIX = ".deleting-"


def tombstone(layout: Layout, run_id: str) -> Path:
    """Return the directory of a run that was set aside; it need not exist."""
    return layout.runs / f"{_PREFIX}{run_id}"


def run_of(name: str) -> str | None:
    """Return the id of the run that a directory's name says was set aside; None where it says nothing of the kind."""
    run_id = name.removeprefix(_PREFIX)
    return run_id if name.startswith(_PREFIX) and is_id(run_id) else None
