"""The one way to read a run: what its files say together, whoever was killed in between.

Writes nothing. What needs a repair is said (``RunView.needs_reconcile``); ``pisub.runs.reconcile`` does it.
"""

from __future__ import annotations

from collections.abc import Callable

from pisub.errors import AmbiguousIdError, PisubError, RecordCorruptError, RecordError, UnknownRunError
from pisub.ids import check_prefix, is_id
from pisub.process import Liveness, ProcessIdentity, is_being_reaped
from pisub.protocol.base import Record
from pisub.protocol.runs import RunState
from pisub.record.atomic import exists, read_record, read_survivor
from pisub.record.dirs import check_dir, list_names
from pisub.record.layout import Layout, RunPaths
from pisub.record.liveness import run_liveness
from pisub.record.lock import is_held
from pisub.record.model import LaunchNote, ProcessTerminalProof, RunResult, RunStatus, Started
from pisub.record.pairs import READINGS, Reading, StatusFile, Verdict
from pisub.record.tombstones import tombstone
from pisub.runs.spec import RunSpec

#: A commit passes its states in order, so three looks see an allowed one unless the files are damaged.
_LOOKS = 4
_MAX_CANDIDATES = 8

OnProblem = Callable[[str, PisubError], None]


class RunView(Record, frozen=True, kw_only=True):
    """A run, as its record has it.

    Attributes:
        run_id: Its id.
        state: Where it stands.
        is_unknown: Nobody here can tell whether its runner, or its submitter, lives: *unknown, last seen*
            ``status.last_update``.
        needs_reconcile: Its process is dead or its end half written: ``reconcile`` has work to do.
        spec: What it was asked to do.
        started: Its one start; None before.
        status: The runner's last status; None before the first.
        result: How it ended, pending or public; None while it goes on.
        proof: What its parent process saw of its end; None where nobody did.
        problems: Files that a power cut tore, and a proof that does not parse: read as missing, and said here.
    """

    run_id: str
    state: RunState
    is_unknown: bool = False
    needs_reconcile: bool = False
    spec: RunSpec
    started: Started | None = None
    status: RunStatus | None = None
    result: RunResult | None = None
    proof: ProcessTerminalProof | None = None
    problems: tuple[str, ...] = ()


class RunFiles(Record, frozen=True, kw_only=True):
    """The files of a run at one moment, before they are judged."""

    spec: RunSpec
    launched: LaunchNote | None
    started: Started | None
    status: RunStatus | None
    pending: RunResult | None
    result: RunResult | None
    proof: ProcessTerminalProof | None
    reading: Reading
    was_started: bool
    problems: tuple[str, ...]


def read_run(layout: Layout, run_id: str) -> RunView:
    """Read a run.

    Raises:
        InvalidIdError: ``run_id`` is not an id; nothing was touched.
        UnknownRunError: No such run was submitted; ``code`` is ``gone`` where it was removed as old.
        RecordCorruptError: A file of it is whole but does not parse; the message names it.
        UnsafePathError: A file or directory of it is a symlink or another user's.
    """
    paths = layout.run(run_id)
    files = read_files(layout, paths)
    is_marked = exists(layout.active / run_id)
    is_locked = (is_marked or not files.reading.is_committed) and is_held(paths.lock)
    state, result = _judge(files, is_held=is_locked and not _is_repairing(paths, files))
    life = Liveness.ALIVE if state.is_terminal or is_locked else _life(paths, files)
    is_half_done = state.is_terminal and (is_marked or not files.reading.is_committed) and not is_locked
    return RunView(
        run_id=run_id,
        state=state,
        is_unknown=life is Liveness.UNKNOWN,
        needs_reconcile=is_half_done or life is Liveness.DEAD,
        spec=files.spec,
        started=files.started,
        status=files.status,
        result=result,
        proof=files.proof,
        problems=files.problems,
    )


def read_files(layout: Layout, paths: RunPaths) -> RunFiles:
    """Read the files of a run, again while a writer is between two of them.

    Raises:
        UnknownRunError: No such run was submitted.
        RecordCorruptError: A file is whole but does not parse.
        UnsafePathError: A file or directory is a symlink or another user's.
    """
    check_dir(layout.root)
    check_dir(layout.runs)
    spec = read_record(paths.spec, RunSpec)
    if spec is None:
        raise _no_run(layout, paths.run_id)
    if spec.run_id != paths.run_id:
        raise RecordCorruptError(f"{paths.spec} is the spec of run {spec.run_id[:40]!a}: it was moved or copied.")
    files = _look(paths, spec)
    for _ in range(_LOOKS - 1):
        if files.reading.is_allowed:
            break
        files = _look(paths, spec)
    if not files.reading.is_committed and not exists(paths.spec):
        raise _no_run(layout, paths.run_id)  # removed while it was read: what is missing was there before
    return files


def list_runs(
    layout: Layout,
    *,
    session_id: str | None = None,
    include_finished: bool = False,
    on_problem: OnProblem | None = None,
) -> list[RunView]:
    """Read the runs that go on, newest first; the cost does not grow with the runs that have ended.

    Args:
        layout: The record.
        session_id: Only runs of this session.
        include_finished: Also the runs that ended; this reads every run of the session, or all.
        on_problem: Told the id and the error of each run that cannot be read. It hides no other run.

    Raises:
        UnsafePathError: A directory of the record is unsafe.
    """
    session = None if session_id is None else layout.session(session_id)
    if include_finished:
        ids = list_names(layout.runs if session is None else session.runs)
    else:
        ids = list_names(layout.active)
        if session is not None:
            ids = [each for each in ids if exists(session.runs / each)]
    views: list[RunView] = []
    for run_id in sorted(filter(is_id, ids), reverse=True):
        try:
            view = read_run(layout, run_id)
        except UnknownRunError:
            continue  # its submission was never finished, or it was removed a moment ago
        except (PisubError, OSError) as error:
            if on_problem is not None:
                on_problem(run_id, as_problem(f"Run {run_id}", error))
            continue
        if include_finished or not view.state.is_terminal:
            views.append(view)
    return views


def find_run(layout: Layout, text: str, *, session_id: str | None = None) -> str:
    """Return the id that a text means: a whole id, or the only one that begins so.

    A prefix is looked for in the session first, then among all runs.

    Raises:
        InvalidIdError: The text cannot begin an id; nothing was touched.
        UnknownRunError: No run fits.
        AmbiguousIdError: Several do.
    """
    prefix = check_prefix(text)
    if is_id(prefix):
        if not exists(layout.run(prefix).spec):
            raise _no_run(layout, prefix)
        return prefix
    places = [layout.runs] if session_id is None else [layout.session(session_id).runs, layout.runs]
    for place in places:
        fits = sorted(
            name
            for name in list_names(place)
            if name.startswith(prefix) and is_id(name) and exists(layout.run(name).spec)
        )
        if len(fits) == 1:
            return fits[0]
        if fits:
            raise AmbiguousIdError(
                f"{prefix} begins {len(fits)} run ids: give more of it.", candidates=tuple(fits[-_MAX_CANDIDATES:])
            )
    raise UnknownRunError(f"No run id begins with {prefix} (see `pisub ps -a`).")


def _no_run(layout: Layout, run_id: str) -> UnknownRunError:
    if exists(tombstone(layout, run_id)):
        return UnknownRunError(f"Run {run_id} was removed, for it ended long ago (`pisub prune`).", code="gone")
    return UnknownRunError(f"There is no run {run_id} (see `pisub ps -a`).")


def as_problem(what: str, error: PisubError | OSError) -> PisubError:
    """Return an error as one that names what could not be read; the system's own (EIO, EACCES) say only a number."""
    return error if isinstance(error, PisubError) else RecordError(f"{what}: {error}")


def _look(paths: RunPaths, spec: RunSpec) -> RunFiles:
    problems: list[str | None] = []
    started, torn_start = read_survivor(paths.started, Started)
    status, torn = read_survivor(paths.status, RunStatus)
    problems += (torn_start, torn)
    pending, torn = read_survivor(paths.pending_result, RunResult)
    problems.append(torn)
    result, torn = read_survivor(paths.result, RunResult)
    problems.append(torn)
    launched: LaunchNote | None = None
    if started is None and status is None:
        launched, torn = read_survivor(paths.launched, LaunchNote)
        problems.append(torn)
    proof: ProcessTerminalProof | None = None
    try:
        proof = read_record(paths.process_terminal, ProcessTerminalProof)
    except RecordCorruptError as error:
        problems.append(error.message)  # a proof adds to what is known; a bad one takes nothing away
    return RunFiles(
        spec=spec,
        launched=launched,
        started=started,
        status=status,
        pending=pending,
        result=result,
        proof=proof,
        reading=READINGS[_status_file(status), pending is not None, result is not None],
        was_started=started is not None or torn_start is not None,
        problems=tuple(each for each in problems if each is not None),
    )


def _status_file(status: RunStatus | None) -> StatusFile:
    if status is None:
        return StatusFile.ABSENT
    return StatusFile.TERMINAL if status.state.is_terminal else StatusFile.RUNNING


def _is_repairing(paths: RunPaths, files: RunFiles) -> bool:
    """Whether the holder of the lock is not the runner, which is dead, but somebody who finishes its record.

    Asked only where it matters: a pending result that was the end while the lock was free stays the end.
    """
    return files.reading.verdict is Verdict.RUNNING_OR_PENDING and _life(paths, files) is Liveness.DEAD


def _judge(files: RunFiles, *, is_held: bool) -> tuple[RunState, RunResult | None]:
    """Return the state and the result that decides it."""
    not_ended = RunState.RUNNING if files.status is not None or files.was_started else RunState.QUEUED
    match files.reading.verdict:
        case Verdict.RESULT:
            decides = files.result
        case Verdict.PENDING:
            decides = files.pending
        case Verdict.RUNNING_OR_PENDING:
            decides = None if is_held else files.pending
        case Verdict.STATUS:
            return (not_ended if files.status is None else files.status.state), None
        case Verdict.NOT_BEGUN | Verdict.RUNNING:
            decides = None
    return (not_ended, None) if decides is None else (decides.state, decides)


def process_of(files: RunFiles) -> tuple[ProcessIdentity, bool]:
    """Return who would go on with a run, and whether it is the runner: before the launch it is the submitter."""
    if files.started is not None:
        return files.started.process, True
    if files.status is not None:
        return files.status.process, True
    if files.launched is not None:
        return files.launched.process, False  # it may not have come as far as the lock
    return files.spec.submitter, False


def _life(paths: RunPaths, files: RunFiles) -> Liveness:
    process, is_runner = process_of(files)
    life = run_liveness(paths, process, is_runner=is_runner)
    has_parent = is_runner or files.launched is not None
    if life is Liveness.DEAD and has_parent and files.proof is None and is_being_reaped(process):
        # Its parent is writing down how it ended. A repair in this moment would be a guess, and would stand.
        # With the proof written the repair is the parent's own, which reaps only afterwards.
        return Liveness.ALIVE
    return life
