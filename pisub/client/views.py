"""A run as it is now: what the files say, repaired where the process that should have written more is gone.

Reading commands use this, so it must import nothing that they may not: no zmq, no asyncio.
"""

from __future__ import annotations

from pisub.process import ProcessIdentity
from pisub.record.layout import Layout
from pisub.record.reader import OnProblem, RunView, list_runs, read_run
from pisub.runs.reconcile import reconcile, reconcile_all


def process_of(view: RunView) -> ProcessIdentity | None:
    """Return the runner's process; None while nothing has started."""
    if view.status is not None:
        return view.status.process
    return view.started.process if view.started is not None else None


def current_view(layout: Layout, run_id: str, *, now_ms: int) -> RunView:
    """Read one run, and finish its record first where its process is gone.

    Raises:
        UnknownRunError: There is no such run.
        RecordCorruptError: A file of it does not parse.
    """
    view = read_run(layout, run_id)
    return reconcile(layout, run_id, now_ms=now_ms) if view.needs_reconcile else view


def current_views(
    layout: Layout,
    *,
    now_ms: int,
    session_id: str | None = None,
    include_finished: bool = False,
    on_problem: OnProblem | None = None,
) -> list[RunView]:
    """Read runs, newest first, repaired like ``current_view``; ``on_problem`` as in ``list_runs``.

    A run that was found dead is returned too, also without ``include_finished``: whoever looks wants to know.
    """
    live = reconcile_all(layout, now_ms=now_ms, session_id=session_id, on_problem=on_problem)
    if not include_finished:
        return live
    return list_runs(layout, session_id=session_id, include_finished=True, on_problem=on_problem)


def live_views(layout: Layout, *, now_ms: int, session_id: str | None = None) -> list[RunView]:
    """Read the runs that go on, and those that were found dead just now.

    One that its own runner has ended is neither, although its marker may still lie there.
    """
    views = current_views(layout, now_ms=now_ms, session_id=session_id)
    return [
        view
        for view in views
        if not view.state.is_terminal or view.result is None or view.result.reported_by != "runner"
    ]
