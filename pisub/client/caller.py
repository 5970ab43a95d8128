"""Whose process this is: a person's or a program's, or a run's, and which one's. And what a run may do to others.

The kernel says it: a run's processes descend from its runner, which holds ``run.lock`` (and, as a subreaper, keeps
those that were orphaned). Where the kernel says nothing, as after a runner's death, the environment does. This keeps
mistakes and injected commands in bounds, not a program of the same user that goes round pisub.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pisub.config import RUN_ID_VARIABLE, caller_environment
from pisub.errors import PisubError, RefusedError, UnknownRunError
from pisub.ids import is_id
from pisub.process import read_stat
from pisub.record.atomic import read_record
from pisub.record.layout import Layout
from pisub.record.model import Started
from pisub.record.reader import RunView, list_runs, read_run
from pisub.record.tree import is_below

#: ``code`` of what a run's process may not do.
CHILD_REFUSED = "child_refused"


def calling_run(layout: Layout) -> str | None:
    """Return the live run that this process belongs to, as the kernel knows it; the nearest of several."""
    line = _line_of_descent()
    if not Path("/proc/self/fd").is_dir():
        return _by_record(layout, line)
    directory = f"{os.path.realpath(layout.runs)}/"
    for pid, start_ticks in line.items():
        for run_id in _locks_of(pid, directory):
            try:
                started = read_record(layout.run(run_id).started, Started)
            except PisubError:
                continue
            # Who only repairs or resumes a run holds its lock too, and is not its runner.
            if started is not None and (started.process.pid, started.process.start_ticks) == (pid, start_ticks):
                return run_id
    return None


def asking_run(layout: Layout) -> RunView | None:
    """Return the run whose child a run of this process's would be; None for a person's or a program's.

    Besides the kernel's word the environment's counts: what a dead runner left behind is no person.
    """
    run_id = calling_run(layout) or caller_environment().get(RUN_ID_VARIABLE, "")
    if not is_id(run_id):
        return None
    try:
        return read_run(layout, run_id)
    except UnknownRunError:
        return None


def require_control(layout: Layout, run_id: str, what: str) -> None:
    """Pass for who may stop, steer, interrupt or resume a run: a person or a program, and the runs above it.

    Args:
        layout: The record.
        run_id: The run that is to be controlled.
        what: What is wanted, as it follows "may not".

    Raises:
        RefusedError: This process is a run's, and ``run_id`` is not below that one (``child_refused``).
    """
    caller = calling_run(layout)
    if caller is not None and not is_below(layout, run_id, caller):
        raise RefusedError(
            f"A child of run {caller} may not {what}: a run controls the runs that it started, and theirs, and no "
            "others.",
            code=CHILD_REFUSED,
        )


def require_person(layout: Layout, what: str) -> None:
    """Pass for a person's own command, or a program that no run started.

    Args:
        layout: The record whose live runs count.
        what: What is wanted, as it follows "may not".

    Raises:
        RefusedError: This process descends from a live run (``child_refused``).
    """
    caller = calling_run(layout)
    if caller is not None:
        raise RefusedError(f"A child of run {caller} may not {what}: only a person may.", code=CHILD_REFUSED)


def _line_of_descent() -> dict[int, int]:
    """Return this process and its parents up to the first: start time by pid, nearest first."""
    found: dict[int, int] = {}
    pid = os.getpid()
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


def _locks_of(pid: int, directory: str) -> Iterator[str]:
    """Yield the runs whose lock a process has open."""
    descriptors = f"/proc/{pid}/fd"
    try:
        names = os.listdir(descriptors)  # noqa: PTH208  # names only, of each process above
    except OSError:
        return  # another user's, or gone
    for name in names:
        try:
            target = os.readlink(f"{descriptors}/{name}")  # noqa: PTH115  # a text, not a path to follow
        except OSError:
            continue
        if target.startswith(directory) and target.endswith("/run.lock"):
            run_id = target[len(directory) : -len("/run.lock")]
            if is_id(run_id):
                yield run_id


def _by_record(layout: Layout, line: dict[int, int]) -> str | None:
    """Return the same without ``/proc``: from the starts of all live runs."""
    for view in list_runs(layout):
        process = None if view.started is None else view.started.process
        if process is not None and process.pid in line and line[process.pid] == process.start_ticks:
            return view.run_id
    return None
