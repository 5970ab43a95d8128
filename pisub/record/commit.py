"""The end of a run, written: pending result, status, result, journal, asks, messages, completion, marker.

In this order, always.
One function for the runner and for reconciliation. It can be cut off after any step and called again: what is there
already is kept, and the first result that became public is the result.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Sequence
from typing import Any

from pisub.errors import RecordError, RefusedError
from pisub.record.atomic import read_survivor, remove
from pisub.record.ends import end_status
from pisub.record.journal import Journal
from pisub.record.layout import Layout
from pisub.record.lock import RunLock
from pisub.record.model import RunResult, RunStatus
from pisub.record.questions import close_open_asks
from pisub.record.results import drop_pending, write_pending, write_result
from pisub.record.sessions import completion_of, post_completion
from pisub.record.status import write_status
from pisub.record.steering import close_inbox

#: Types of the line that closes a journal. One of them is written once per end.
CLOSING_TYPES = frozenset({"subagent.run.completed", "subagent.run.repaired_stale"})

Line = tuple[str, dict[str, Any]]


class CommitStep(enum.Enum):
    """What has just become durable."""

    PENDING = "pending"
    STATUS = "status"
    RESULT = "result"
    PENDING_REMOVED = "pending-removed"
    JOURNAL = "journal"
    ASKS = "asks"
    MESSAGES = "messages"
    COMPLETION = "completion"
    MARKER_REMOVED = "marker-removed"


def _ignore(_step: CommitStep) -> None:
    """Do nothing between the steps."""


def commit_end(
    layout: Layout,
    lock: RunLock,
    status: RunStatus,
    result: RunResult,
    *,
    journal: Journal | None = None,
    lines: Sequence[Line] = (),
    on_step: Callable[[CommitStep], None] = _ignore,
) -> RunResult:
    """Write the end of a run. Blocks for a few flushes; safe to call again after any error, at any step.

    Args:
        layout: The record.
        lock: The run's lock, held.
        status: The last status. Its terminal form is computed from the result (``ends.end_status``).
        result: How the run ended.
        journal: Gets ``lines``; a failure to write them fails nothing.
        lines: Closing events (type, data), the last one of a type in ``CLOSING_TYPES``. Not written twice.
        on_step: Called after each step; what it raises cuts the commit off there.

    Returns:
        The run's result: the given one, or the one that was public before.

    Raises:
        RecordError: The lock is not this run's, or not held.
        OSError: The disk is full, or the like. Nothing is half written; call again.
    """
    paths = layout.run(result.run_id)
    if not lock.is_held or lock.path != paths.lock:
        raise RecordError(f"Only the holder of {paths.lock} may end run {paths.run_id}.", code="lock_not_held")
    public, _ = read_survivor(paths.result, RunResult)
    if public is None:
        write_pending(paths, result)
        on_step(CommitStep.PENDING)
    else:
        result = public
    write_status(paths, end_status(status, result))
    on_step(CommitStep.STATUS)
    write_result(paths, result)
    on_step(CommitStep.RESULT)
    drop_pending(paths)
    on_step(CommitStep.PENDING_REMOVED)
    if journal is not None:
        _close_journal(journal, lines, ts=result.ended_at)
    on_step(CommitStep.JOURNAL)
    close_open_asks(layout, paths.run_id, reason=f"The run ended: {result.state.value}.", at=result.ended_at)
    on_step(CommitStep.ASKS)
    with contextlib.suppress(RecordError, RefusedError):  # no directory of ours: what lies there holds up no end
        close_inbox(paths, reason=f"The run ended: {result.state.value}.", now_ms=result.ended_at)
    on_step(CommitStep.MESSAGES)
    post_completion(layout, completion_of(result))
    on_step(CommitStep.COMPLETION)
    # Last: while the marker is there, list_runs and reconcile_all look at this run.
    remove(layout.active / paths.run_id)
    on_step(CommitStep.MARKER_REMOVED)
    return result


def _close_journal(journal: Journal, lines: Sequence[Line], *, ts: int) -> None:
    if journal.last_event is None or journal.last_event.type not in CLOSING_TYPES:
        for kind, data in lines:
            journal.append(kind, data, ts=ts)
    # The journal is for people and views; the end of a run does not wait for it.
    with contextlib.suppress(OSError, RecordError):
        journal.flush()
