"""How much may be started: the caps of a session and of a tree, counted and used up in one step.

Each cap has its own zero (contract, runs 5.3): the session's 0 is no limit, the tree's 0 the default (and never
stored), the active runs' 0 no limit. Whoever submits where a cap counts holds the session's ``caps.lock``, which is the
kernel's: a killed submitter frees it. A batch fits as a whole, or nothing of it is submitted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence

import msgspec

from pisub.errors import CapReachedError, InvalidArgumentError, LockBusyError, PisubError, RefusedError, UnknownRunError
from pisub.ids import is_id
from pisub.process import ProcessIdentity
from pisub.protocol.base import Record
from pisub.protocol.limits import DEFAULT_SPAWNS_PER_RUN
from pisub.record.atomic import encode_record, exists, read_record, remove, write_new
from pisub.record.dirs import list_names, make_dir
from pisub.record.layout import Layout, SessionPaths
from pisub.record.lock import RunLock
from pisub.record.reader import RunView, read_run
from pisub.record.submit import prepare_session
from pisub.record.tree import (
    count_charged,
    drop_unsubmitted,
    forget_in_tree,
    note_in_tree,
    root_of,
    was_never_submitted,
)
from pisub.runs.spec import RunSpec

#: Codes of ``CapReachedError``; the tree's is the contract's, letter for letter.
RUN_FANOUT_LIMIT = "RUN_FANOUT_LIMIT"
SESSION_SPAWN_LIMIT = "session_spawn_limit"
ACTIVE_RUN_LIMIT = "active_run_limit"
#: A batch is submitted within milliseconds; who holds the lock for longer than this was stopped in the middle.
_LOCK_WAIT_S = 10.0
#: Grants that are kept for people (contract, runs 5.3).
KEPT_GRANTS = 20


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    """What the settings of a submitter say.

    Attributes:
        per_session: Of a session that has no run yet; 0 is no limit.
        active: Detached runs of the session at once; 0 is no limit.
    """

    per_session: int = 0
    active: int = 0


class SessionCaps(Record, frozen=True, kw_only=True):
    """``caps.json``: a session's cap as its first submission found it. ``maxSpawns`` 0 is no limit."""

    session_id: str
    max_spawns: int
    frozen_at: int


class SpawnGrant(Record, frozen=True, kw_only=True):
    """``grants/<n>.json``: more runs for a session. ``total`` is of all grants so far."""

    number: int
    amount: int
    total: int
    granted_at: int
    by: ProcessIdentity


class SpawnBudget(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What a session may start, for people.

    Attributes:
        used: Runs that were counted. Without a cap none is, and the runs that the session has are shown.
        limit: With what was granted; null is no limit.
        granted: Granted in all.
        grants: The latest, oldest first.
    """

    used: int
    limit: int | None
    granted: int = 0
    grants: tuple[SpawnGrant, ...] = ()


@contextlib.contextmanager
def admission(layout: Layout, specs: Sequence[RunSpec], caps: Caps, *, paths: Sequence[str]) -> Generator[None]:
    """Use up the room for some runs, for the time in which the caller submits them.

    A run that was submitted before is not counted again. What the caller did not submit is given back where it raises,
    or is killed; what it did submit is spent, whatever becomes of it.

    Args:
        layout: The record.
        specs: Of one session and one parent.
        caps: What the settings say.
        paths: How each is called in an error.

    Raises:
        CapReachedError: They do not fit; nothing was changed.
        LockBusyError: Another process has been in the middle of a submission for seconds.
        OSError: The disk is full, or the like.
    """
    first = specs[0]
    session = prepare_session(layout, first.session_id)
    frozen = _freeze(session, caps, first.submitted_at)
    if first.root_run_id is None and not frozen.max_spawns and not caps.active:
        yield
        return
    with locked(session):
        fresh = [
            (spec, path) for spec, path in zip(specs, paths, strict=True) if not exists(layout.run(spec.run_id).spec)
        ]
        new = [spec for spec, _ in fresh]
        names = [path for _, path in fresh]
        if frozen.max_spawns:
            _check_session(layout, session, frozen, names)
        if first.root_run_id is not None:
            _check_tree(layout, first, names)
        if caps.active:
            _check_active(layout, session, new, names, caps.active)
        try:
            for spec in new:
                _charge(layout, session, spec, is_capped=bool(frozen.max_spawns))
            yield
        except BaseException:
            for spec in new:
                if was_never_submitted(layout, spec.run_id):
                    remove(session.spawns / spec.run_id)
                    forget_in_tree(layout, spec)
            raise


@contextlib.contextmanager
def locked(session: SessionPaths) -> Generator[None]:
    """Hold the lock of a session's caps.

    Raises:
        LockBusyError: Somebody else has held it for seconds.
    """
    lock = RunLock.acquire(session.caps_lock, wait_s=_LOCK_WAIT_S)
    if lock is None:
        raise LockBusyError(
            f"Another process is submitting runs of session {session.session_id!a} and does not end: "
            f"`fuser {session.caps_lock}` names it. Nothing was started."
        )
    with lock:
        yield


def grant_spawns(layout: Layout, session_id: str, amount: int, *, now_ms: int, by: ProcessIdentity) -> SpawnBudget:
    """Let a session start more runs than its cap; all grants together at most the cap once more.

    Raises:
        InvalidArgumentError: ``amount`` is no positive number, or too much.
        RefusedError: The session has no cap (``session_unlimited``).
        LockBusyError: Another process holds the lock.
    """
    session = prepare_session(layout, session_id)
    frozen = read_record(session.caps, SessionCaps)
    if frozen is None or not frozen.max_spawns:
        raise RefusedError(
            f"Session {session_id!a} has no cap of runs (max_spawns_per_session), so there is nothing to grant.",
            code="session_unlimited",
        )
    with locked(session):
        earlier = _grants(session)
        number, total = (earlier[-1].number, earlier[-1].total) if earlier else (0, 0)
        if not 1 <= amount <= frozen.max_spawns - total:
            raise InvalidArgumentError(
                f"{amount} cannot be granted: the session's cap is {frozen.max_spawns}, at most as much again may be "
                f"granted in all, and {total} was.",
                field="amount",
            )
        make_dir(session.grants)
        grant = SpawnGrant(number=number + 1, amount=amount, total=total + amount, granted_at=now_ms, by=by)
        write_new(session.grants / f"{grant.number:d}.json", encode_record(grant), fsync=False)
        for old in earlier[: -KEPT_GRANTS + 1]:
            remove(session.grants / f"{old.number:d}.json")
    return session_budget(layout, session_id)


def session_budget(layout: Layout, session_id: str) -> SpawnBudget:
    """Read what a session has started, and may start."""
    session = layout.session(session_id)
    frozen = read_record(session.caps, SessionCaps)
    if frozen is None or not frozen.max_spawns:
        return SpawnBudget(used=len(list_names(session.runs)), limit=None)
    grants = _grants(session)
    granted = grants[-1].total if grants else 0
    used = len(list_names(session.spawns))
    return SpawnBudget(used=used, limit=frozen.max_spawns + granted, granted=granted, grants=tuple(grants))


def tree_budget(layout: Layout, root: RunSpec) -> SpawnBudget:
    """Read what was started below a first run, and may be. ``root`` is that run's spec."""
    return SpawnBudget(used=count_charged(layout, root.run_id), limit=root.max_spawns_per_run)


def count_active(layout: Layout, session_id: str) -> int:
    """Count the runs that a session's cap of active runs counts: detached, not nested, and not known to be over.

    What cannot be read, or nobody can tell about, counts.
    """
    session = layout.session(session_id)
    ids = [each for each in list_names(layout.active) if is_id(each) and exists(session.runs / each)]
    return sum(_is_active(layout, each) for each in ids)


def _freeze(session: SessionPaths, caps: Caps, now_ms: int) -> SessionCaps:
    frozen = read_record(session.caps, SessionCaps)
    if frozen is not None:
        return frozen
    wanted = SessionCaps(session_id=session.session_id, max_spawns=caps.per_session, frozen_at=now_ms)
    write_new(session.caps, encode_record(wanted), fsync=False)
    return read_record(session.caps, SessionCaps) or wanted


def _check_session(layout: Layout, session: SessionPaths, frozen: SessionCaps, names: Sequence[str]) -> None:
    grants = _grants(session)
    limit = frozen.max_spawns + (grants[-1].total if grants else 0)
    used = len(list_names(session.spawns))
    if used + len(names) > limit:
        for run_id in filter(is_id, list_names(session.spawns)):
            if was_never_submitted(layout, run_id):  # its submitter was killed in between
                remove(session.spawns / run_id)
        used = len(list_names(session.spawns))
    _require(
        SESSION_SPAWN_LIMIT,
        f"Session {session.session_id!a} may start {limit} runs (max_spawns_per_session, as it was at its first one)",
        used=used,
        limit=limit,
        names=names,
        way_out="Use another session, or have more granted (`pisub caps --grant N`).",
    )


def _check_tree(layout: Layout, spec: RunSpec, names: Sequence[str]) -> None:
    root_id = root_of(spec)
    root = read_record(layout.run(root_id).spec, RunSpec)
    limit = DEFAULT_SPAWNS_PER_RUN if root is None else root.max_spawns_per_run
    used = count_charged(layout, root_id)
    if used + len(names) > limit:
        drop_unsubmitted(layout, root_id)
        used = count_charged(layout, root_id)
    _require(
        RUN_FANOUT_LIMIT,
        f"Below run {root_id} at most {limit} runs may be started (max_spawns_per_run, as it was for that run)",
        used=used,
        limit=limit,
        names=names,
        way_out="Start the rest from outside, as runs of their own.",
    )


def _check_active(
    layout: Layout, session: SessionPaths, new: Sequence[RunSpec], names: Sequence[str], limit: int
) -> None:
    names = [name for spec, name in zip(new, names, strict=True) if _takes_slot(spec)]
    if not names:
        return
    _require(
        ACTIVE_RUN_LIMIT,
        f"Session {session.session_id!a} may have {limit} detached runs at once (max_active_async_runs_per_session)",
        used=count_active(layout, session.session_id),
        limit=limit,
        names=names,
        way_out="Wait for one to end (`pisub wait --any`), or stop one.",
    )


def _require(code: str, rule: str, *, used: int, limit: int, names: Sequence[str], way_out: str) -> None:
    left = max(0, limit - used)
    if len(names) <= left:
        return
    what = "this one does not fit" if len(names) == 1 else f"these {len(names)} do not fit, from {names[left]} on"
    raise CapReachedError(
        f"{rule}, {used} are used, and {what}. Nothing was started. {way_out}",
        code=code,
        used=used,
        limit=limit,
        path=names[left],
    )


def _charge(layout: Layout, session: SessionPaths, spec: RunSpec, *, is_capped: bool) -> None:
    if is_capped:
        make_dir(session.spawns)
        write_new(session.spawns / spec.run_id, b"", fsync=False)
    note_in_tree(layout, spec)


def _grants(session: SessionPaths) -> list[SpawnGrant]:
    found = (read_record(session.grants / name, SpawnGrant) for name in list_names(session.grants))
    return sorted((each for each in found if each is not None), key=lambda each: each.number)


def _is_active(layout: Layout, run_id: str) -> bool:
    try:
        view = read_run(layout, run_id)
    except UnknownRunError:
        return False  # its submission was never finished
    except (PisubError, OSError):
        return True
    return _takes_slot(view.spec) and not _is_over(view)


def _takes_slot(spec: RunSpec) -> bool:
    return spec.parent_run_id is None and spec.attached_to is None


def _is_over(view: RunView) -> bool:
    return view.state.is_terminal or view.needs_reconcile
