"""What a child may not do by calling the command line: stop a run, answer a question, be the host.

A process that descends from a live runner is a child. This protects against mistakes and against commands that were
talked into an agent; a program of the same user that wants to can still write the files.
"""

from __future__ import annotations

import os

from pisub.client.views import process_of
from pisub.errors import RefusedError
from pisub.process import read_stat
from pisub.record.layout import Layout
from pisub.record.reader import list_runs


def refuse_children(layout: Layout, what: str) -> None:
    """Pass for a person's own command.

    Args:
        layout: The record whose live runs count.
        what: What is wanted, as it follows "may not".

    Raises:
        RefusedError: This process descends from a live run.
    """
    ancestors = _ancestors()
    for view in list_runs(layout):
        process = process_of(view)
        if process is not None and ancestors.get(process.pid) == process.start_ticks:
            raise RefusedError(f"A child of run {view.run_id} may not {what}: only a person may.", code="child_refused")


def _ancestors() -> dict[int, int]:
    """Return this process's parents up to the first: start time by pid."""
    found: dict[int, int] = {}
    pid = os.getppid()
    while pid > 1 and pid not in found:
        try:
            stat = read_stat(pid)
        except PermissionError:
            break
        if stat is None:
            break
        found[pid] = stat.start_ticks
        pid = stat.parent_pid
    return found
