"""Removing old runs, in two steps: a run is renamed out of sight, and its files go later.

Fails closed: what cannot be read, or may still be needed by anybody, stays, and it is said why. The rename is made
under the run's lock, so who resumes or repairs a run at the same moment has it whole, or learns that it is gone.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from pathlib import Path

import msgspec

from pisub.errors import PisubError, RecordCorruptError, UnknownRunError
from pisub.ids import is_id, time_of
from pisub.protocol.runs import RunState
from pisub.record import disk
from pisub.record.atomic import exists
from pisub.record.dirs import list_names, open_dir
from pisub.record.layout import Layout
from pisub.record.lock import RunLock
from pisub.record.reader import RunView, list_runs, read_run
from pisub.record.subscriptions import waited_runs
from pisub.record.tombstones import tombstone

#: Contract, runs 2.7.
DEFAULT_AGE_MS = 30 * 24 * 3_600_000


class Skip(enum.StrEnum):
    """Why a run stays (contract, runs 2.7: those of its reasons that there are here)."""

    INVALID_STATUS = "invalid-status"
    IDENTITY_MISMATCH = "identity-mismatch"
    RUNTIME_REFERENCE = "runtime-reference"
    WAIT_REFERENCE = "wait-reference"
    ACTIVE_INDEX = "active-index"
    NON_TERMINAL = "non-terminal"
    NESTED_REFERENCE = "nested-reference"
    #: Its end is in the outbox, and no host has handled it.
    COMPLETION_REFERENCE = "completion-reference"
    RESUMABLE = "resumable"
    UNKNOWN_AGE = "unknown-age"
    RECENT = "recent"


class Removal(msgspec.Struct, frozen=True):
    """What became of one run. ``reason`` is None where it was, or in a dry run would be, set aside."""

    run_id: str
    reason: Skip | None
    detail: str = ""


class References(msgspec.Struct, frozen=True):
    """What other files name. None where that could not be read: then every run may be named."""

    nested: frozenset[str] | None
    waited: frozenset[str] | None


def set_aside(
    layout: Layout,
    *,
    now_ms: int,
    older_than_ms: int = DEFAULT_AGE_MS,
    is_dry_run: bool = False,
    with_undelivered: bool = False,
    limit: int | None = None,
) -> Iterator[Removal]:
    """Rename runs that ended long ago to ``.deleting-<run id>``, oldest first; yield each run that was looked at.

    The runs that were submitted since are not looked at, by the time in their ids, and not yielded.

    Args:
        layout: The record.
        now_ms: Unix time in milliseconds.
        older_than_ms: Only runs that ended, and whose files changed, before that long ago.
        is_dry_run: Change nothing.
        with_undelivered: Also runs whose end no host has handled.
        limit: End after so many removals.
    """
    references = _references(layout)
    count = 0
    for run_id in sorted(filter(is_id, list_names(layout.runs))):
        if limit is not None and count >= limit:
            return
        if time_of(run_id) > now_ms - older_than_ms:
            return
        judge = _Judge(layout, references, now_ms - older_than_ms, with_undelivered=with_undelivered)
        removal = judge.look(run_id)
        if removal.reason is None and not is_dry_run:
            removal = _set_aside(layout, judge, run_id)
        count += removal.reason is None
        yield removal


def _set_aside(layout: Layout, judge: _Judge, run_id: str) -> Removal:
    try:
        lock = RunLock.acquire(layout.run(run_id).lock)
        if lock is None:
            return Removal(run_id, Skip.RUNTIME_REFERENCE, "Somebody holds its lock.")
        with lock:
            # It may have been resumed since the first look. Only the lock itself may have changed the directory.
            removal = judge.look(run_id, is_locked=True)
            if removal.reason is None:
                with open_dir(layout.runs) as directory:
                    disk.rename(run_id, tombstone(layout, run_id).name, directory=directory)
    except FileNotFoundError:
        return Removal(run_id, Skip.RUNTIME_REFERENCE, "Somebody else removes it.")
    except (PisubError, OSError) as error:
        return Removal(run_id, Skip.INVALID_STATUS, str(error))
    return removal


class _Judge:
    """Tells whether a run may go. Every doubt is a reason to stay."""

    def __init__(self, layout: Layout, references: References, before_ms: int, *, with_undelivered: bool) -> None:
        self._layout = layout
        self._references = references
        self._before_ms = before_ms
        self._with_undelivered = with_undelivered

    def look(self, run_id: str, *, is_locked: bool = False) -> Removal:
        """Judge one run as its files are now; ``is_locked``: this process holds its lock, which may be new."""
        paths = self._layout.run(run_id)
        try:
            changed_ms = _changed_ms(paths.status, *(() if is_locked else (paths.dir,)))
            if is_locked and not exists(paths.status):
                changed_ms = time_of(run_id)
            if not exists(paths.spec):  # a submission that was never finished: no run, but for its directory
                return Removal(run_id, self._age(changed_ms))
            view = read_run(self._layout, run_id)
            return Removal(run_id, self._reason(view, changed_ms))
        except RecordCorruptError as error:
            is_other = "moved or copied" in error.message
            return Removal(run_id, Skip.IDENTITY_MISMATCH if is_other else Skip.INVALID_STATUS, error.message)
        except UnknownRunError as error:
            return Removal(run_id, Skip.RUNTIME_REFERENCE, error.message)
        except (PisubError, OSError) as error:
            return Removal(run_id, Skip.INVALID_STATUS, str(error))

    def _reason(self, view: RunView, changed_ms: int) -> Skip | None:  # noqa: PLR0911  # one line per reason
        run_id, nested, waited = view.run_id, self._references.nested, self._references.waited
        if view.is_unknown:
            return Skip.RUNTIME_REFERENCE
        if not view.state.is_terminal:
            return Skip.NON_TERMINAL
        if view.state is RunState.PAUSED:
            has_session = view.result is not None and view.result.session_file is not None
            return Skip.RESUMABLE if has_session else Skip.NON_TERMINAL
        if view.problems or view.result is None:
            return Skip.INVALID_STATUS
        if exists(self._layout.active / run_id) or view.needs_reconcile:
            return Skip.ACTIVE_INDEX
        if waited is None or run_id in waited:
            return Skip.WAIT_REFERENCE
        if nested is None or run_id in nested:
            return Skip.NESTED_REFERENCE
        if not self._with_undelivered and self._is_undelivered(view):
            return Skip.COMPLETION_REFERENCE
        return self._age(max(changed_ms, view.result.ended_at))

    def _is_undelivered(self, view: RunView) -> bool:
        session = self._layout.session(view.spec.session_id)
        name = f"{view.run_id}.{view.state.value}"
        return exists(session.completions / f"{name}.json") and not exists(session.done / name)

    def _age(self, changed_ms: int) -> Skip | None:
        if changed_ms <= 0:
            return Skip.UNKNOWN_AGE
        return Skip.RECENT if changed_ms > self._before_ms else None


def _references(layout: Layout) -> References:
    problems: list[str] = []
    live = list_runs(layout, on_problem=lambda run_id, _: problems.append(run_id))
    named = (each for view in live for each in (view.spec.parent_run_id, view.spec.root_run_id, view.spec.resumed_from))
    nested = None if problems else frozenset(each for each in named if each)
    return References(nested=nested, waited=waited_runs(layout))


def _changed_ms(*paths: Path) -> int:
    """Return the latest moment at which one of them changed, in Unix milliseconds; 0 where none can be looked at."""
    moments: list[int] = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            moments.append(path.lstat().st_mtime_ns // 1_000_000)
    return max(moments, default=0)
