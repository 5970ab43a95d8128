"""Finishing what a dead process left: the one who says that a run failed when nobody else can any more.

Takes the run's lock first, so it never works beside a living runner or another reconciler; judges by identity, lock
and files, never by age; and what it does twice, it does once.
"""

from __future__ import annotations

import contextlib

from pisub.errors import PisubError, RecordError
from pisub.ids import is_id
from pisub.process import Liveness, ProcessIdentity
from pisub.record.atomic import exists, remove, sweep_temp
from pisub.record.commit import CommitStep, Line, commit_end
from pisub.record.control import read_all_requests
from pisub.record.dirs import list_names
from pisub.record.ends import Death, initial_status, result_of_death, result_of_status
from pisub.record.journal import Journal
from pisub.record.layout import Layout, RunPaths
from pisub.record.liveness import run_liveness
from pisub.record.lock import RunLock
from pisub.record.model import RunResult, RunStatus
from pisub.record.pairs import Verdict
from pisub.record.reader import OnProblem, RunFiles, RunView, as_problem, process_of, read_files, read_run
from pisub.record.tails import read_tail
from pisub.runs.cascade import kind_of_end, pass_on

__all__ = ["CommitStep", "commit_end", "reconcile", "reconcile_all"]

#: Another process's look at the lock takes it for microseconds; this is longer. No living runner is waited for.
_LOCK_WAIT_S = 0.1


def reconcile(
    layout: Layout,
    run_id: str,
    *,
    now_ms: int,
    launch_error: str | None = None,
    declared_dead_by: str | None = None,
) -> RunView:
    """Finish the record of a run if its process is gone; else change nothing. Idempotent, safe in many processes.

    Args:
        layout: The record.
        run_id: The run.
        now_ms: Unix time in milliseconds.
        launch_error: The launch failed, with this sentence: a run that has not started will not, although its
            submitter lives.
        declared_dead_by: A person says that a run is dead of which nobody can tell. Has no effect on a living one.

    Returns:
        The run as it is now: unchanged where somebody holds its lock, or its runner or submitter lives or may live.

    Raises:
        UnknownRunError: No such run was submitted.
        RecordCorruptError: A file of it is whole but does not parse: a person must look.
        OSError: The disk is full, or the like. Call again.
    """
    view = read_run(layout, run_id)
    is_wanted = launch_error is not None or (declared_dead_by is not None and view.is_unknown)
    if not view.needs_reconcile and not is_wanted:
        return view
    paths = layout.run(run_id)
    lock = RunLock.acquire(paths.lock, wait_s=_LOCK_WAIT_S)
    if lock is None:
        return read_run(layout, run_id)
    with lock:
        # Whoever held the lock before may have done it all: look again.
        _finish(layout, paths, lock, now_ms=now_ms, launch_error=launch_error, declared_by=declared_dead_by)
    return read_run(layout, run_id)


def reconcile_all(
    layout: Layout, *, now_ms: int, session_id: str | None = None, on_problem: OnProblem | None = None
) -> list[RunView]:
    """Reconcile every run whose end is not wholly recorded. The cost does not grow with the runs that have ended.

    Args:
        layout: The record.
        now_ms: Unix time in milliseconds.
        session_id: Only runs of this session.
        on_problem: Told the id and the error of each run that cannot be read or finished. It stops no other.

    Returns:
        Those runs as they are now, newest first; the ones that ended just now among them.
    """
    session = None if session_id is None else layout.session(session_id)
    views: list[RunView] = []
    for directory in (layout.active, layout.open_asks):
        sweep_temp(directory)
    for run_id in sorted(filter(is_id, list_names(layout.active)), reverse=True):
        try:
            if session is not None and not exists(session.runs / run_id):
                continue
            if not exists(layout.run(run_id).spec):
                # A submission that was not finished is no run. It begins with the directory: without one, the run was
                # removed, and a marker that stayed would be looked at for ever.
                if not exists(layout.run(run_id).dir):
                    remove(layout.active / run_id)
                continue
            views.append(reconcile(layout, run_id, now_ms=now_ms))
        except (PisubError, OSError) as error:
            if on_problem is not None:
                on_problem(run_id, as_problem(f"Run {run_id}", error))
    return views


def _finish(
    layout: Layout,
    paths: RunPaths,
    lock: RunLock,
    *,
    now_ms: int,
    launch_error: str | None,
    declared_by: str | None,
) -> None:
    files = read_files(layout, paths)
    if files.reading.is_committed and not exists(layout.active / paths.run_id):
        return
    result = files.result or files.pending or _lost(files)
    was_written = result is not None
    if result is None and not _is_over(paths, files, launch_error=launch_error, declared_by=declared_by):
        return
    _sweep(paths)
    journal = _open_journal(paths, now_ms)
    with journal if journal is not None else contextlib.nullcontext():
        if result is None:
            result = result_of_death(
                Death(
                    spec=files.spec,
                    started=files.started,
                    status=files.status,
                    was_started=files.was_started or files.status is not None,
                    proof=files.proof,
                    requests=read_all_requests(paths),
                    seen_at=_seen_at(files, journal),
                    now_ms=now_ms,
                    launch_error=launch_error,
                    declared_by=declared_by,
                    stderr_tail=read_tail(paths.stderr_log),
                )
            )
        # Its runner may have died before it told those below.
        kind = kind_of_end(result)
        untold = () if kind is None else pass_on(layout, paths.run_id, kind, now_ms=now_ms)
        lines = [(f"subagent.nested.{kind}_failed", {"runId": each.run_id, "error": each.error}) for each in untold]
        lines.append(_line(result, was_written))
        commit_end(layout, lock, _last_status(files, result), result, journal=journal, lines=lines)


def _sweep(paths: RunPaths) -> None:
    """Remove what killed writers left of files that never got their names."""
    asks: list[str] = []
    with contextlib.suppress(RecordError):  # no directory of ours: nothing of ours is in it
        asks = [each for each in list_names(paths.asks) if is_id(each)]
    for directory in (paths.dir, paths.control, *(paths.ask(each).dir for each in asks)):
        with contextlib.suppress(RecordError):
            sweep_temp(directory)


def _open_journal(paths: RunPaths, now_ms: int) -> Journal | None:
    """Open the journal; a repair of the record does not fail for a journal that cannot be opened."""
    try:
        return Journal.open(paths, paths.run_id, now_ms=now_ms)
    except (OSError, RecordError):
        return None


def _lost(files: RunFiles) -> RunResult | None:
    if files.reading.verdict is not Verdict.STATUS or files.status is None:
        return None
    return result_of_status(files.spec, files.status)


def _is_over(paths: RunPaths, files: RunFiles, *, launch_error: str | None, declared_by: str | None) -> bool:
    """Tell whether nobody will go on with this run. The lock is ours, so nobody does now."""
    if launch_error is not None and not files.was_started and files.status is None:
        return True
    process, is_runner = process_of(files)
    match run_liveness(paths, process, is_runner=is_runner):
        case Liveness.DEAD:
            return True
        case Liveness.UNKNOWN:
            return declared_by is not None
        case Liveness.ALIVE:
            return False


def _seen_at(files: RunFiles, journal: Journal | None) -> int:
    """Return the last moment at which the run was known to live."""
    started_ms = 0 if files.started is None else files.started.started_at
    status_ms = 0 if files.status is None else files.status.last_update
    # The line that reports a repair of the tail is written now, by us, and says nothing of the runner.
    event = None if journal is None else journal.found_event
    return max(started_ms, status_ms, 0 if event is None else event.ts)


def _last_status(files: RunFiles, result: RunResult) -> RunStatus:
    if files.status is not None:
        return files.status
    process = files.started.process if files.started is not None else ProcessIdentity(pid=0)
    return initial_status(files.spec, process, started_at=result.started_at or files.spec.submitted_at)


def _line(result: RunResult, was_written: bool) -> Line:
    data = {
        "state": result.state.value,
        "reason": result.reason,
        "signal": result.signal,
        "wasWritten": was_written,
    }
    return "subagent.run.repaired_stale", {key: value for key, value in data.items() if value is not None}
