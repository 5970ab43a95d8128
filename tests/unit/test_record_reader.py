from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest

from pisub.errors import (
    AmbiguousIdError,
    InvalidIdError,
    PisubError,
    RecordCorruptError,
    UnknownRunError,
    UnsafePathError,
)
from pisub.ids import new_id
from pisub.process import own_identity
from pisub.protocol.runs import RunState
from pisub.record.atomic import encode_record, remove, replace, write_new
from pisub.record.ends import end_status
from pisub.record.layout import Layout, RunPaths
from pisub.record.lock import RunLock
from pisub.record.model import LaunchNote, ProcessTerminalProof, RunStatus
from pisub.record.pairs import READINGS, StatusFile, Verdict
from pisub.record.reader import RunView, find_run, list_runs, read_run
from pisub.record.results import read_pending, read_result, write_pending, write_result
from pisub.record.status import read_status, write_status
from pisub.record.submit import submit_run
from pisub.runs.spec import RunSpec
from tests.support.record_samples import (
    dead_identity,
    hidden_identity,
    make_layout,
    make_result,
    make_spec,
    start,
    submit,
)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return make_layout(tmp_path)


def put(layout: Layout, spec: RunSpec, status: StatusFile, *, pending: bool, result: bool) -> RunPaths:
    """Write one combination of the three files. The pending result says stopped, the public one complete."""
    paths = layout.run(spec.run_id)
    start(layout, spec, own_identity())
    running = read_status(paths)
    assert running is not None
    match status:
        case StatusFile.ABSENT:
            remove(paths.status)
            remove(paths.started)
        case StatusFile.RUNNING:
            pass
        case StatusFile.TERMINAL:
            write_status(paths, end_status(running, make_result(spec, state=RunState.FAILED)))
    if pending:
        write_pending(paths, make_result(spec, state=RunState.STOPPED))
    if result:
        write_result(paths, make_result(spec))
    return paths


#: (status, pending, result) → (allowed, state while the lock is held, state while it is free)
EXPECTED = {
    (StatusFile.ABSENT, False, False): (True, RunState.QUEUED, RunState.QUEUED),
    (StatusFile.ABSENT, True, False): (True, RunState.STOPPED, RunState.STOPPED),
    (StatusFile.RUNNING, False, False): (True, RunState.RUNNING, RunState.RUNNING),
    (StatusFile.RUNNING, True, False): (True, RunState.RUNNING, RunState.STOPPED),
    (StatusFile.TERMINAL, True, False): (True, RunState.STOPPED, RunState.STOPPED),
    (StatusFile.TERMINAL, True, True): (True, RunState.COMPLETE, RunState.COMPLETE),
    (StatusFile.TERMINAL, False, True): (True, RunState.COMPLETE, RunState.COMPLETE),
    (StatusFile.ABSENT, False, True): (False, RunState.COMPLETE, RunState.COMPLETE),
    (StatusFile.ABSENT, True, True): (False, RunState.COMPLETE, RunState.COMPLETE),
    (StatusFile.RUNNING, False, True): (False, RunState.COMPLETE, RunState.COMPLETE),
    (StatusFile.RUNNING, True, True): (False, RunState.COMPLETE, RunState.COMPLETE),
    (StatusFile.TERMINAL, False, False): (False, RunState.FAILED, RunState.FAILED),
}


def test_an_end_that_was_seen_pending_stays_while_a_dead_runners_record_is_finished(layout: Layout) -> None:
    spec = submit(layout)
    start(layout, spec, dead_identity())
    paths = layout.run(spec.run_id)
    write_pending(paths, make_result(spec))
    assert read_run(layout, spec.run_id).state is RunState.COMPLETE
    with RunLock.acquire(paths.lock) or pytest.fail("busy"):
        assert read_run(layout, spec.run_id).state is RunState.COMPLETE


def test_the_table_has_every_combination_and_only_a_finished_commit_is_committed() -> None:
    every = set(itertools.product(StatusFile, (False, True), (False, True)))
    assert set(READINGS) == every == set(EXPECTED)
    assert [files for files, reading in READINGS.items() if reading.is_committed] == [
        (StatusFile.TERMINAL, False, True)
    ]


@pytest.mark.parametrize("files", sorted(EXPECTED, key=str), ids=str)
def test_each_combination_of_files_reads_as_the_table_says(
    layout: Layout, files: tuple[StatusFile, bool, bool]
) -> None:
    spec = submit(layout)
    paths = put(layout, spec, files[0], pending=files[1], result=files[2])
    free = read_run(layout, spec.run_id)
    with RunLock.acquire(paths.lock) or pytest.fail("busy"):
        held = read_run(layout, spec.run_id)
    assert (READINGS[files].is_allowed, held.state, free.state) == EXPECTED[files]
    assert not held.needs_reconcile
    assert free.needs_reconcile == free.state.is_terminal  # the marker is still there, so the end is half written


def test_every_verdict_is_reached_by_some_combination() -> None:
    assert {reading.verdict for reading in READINGS.values()} == set(Verdict)


def test_a_submitted_run_is_queued_while_its_submitter_lives(layout: Layout) -> None:
    spec = submit(layout)
    assert read_run(layout, spec.run_id) == RunView(run_id=spec.run_id, state=RunState.QUEUED, spec=spec)


def test_a_queued_run_of_a_dead_submitter_needs_a_reconciler_and_of_an_unknown_one_does_not(layout: Layout) -> None:
    dead, unknown = submit(layout, submitter=dead_identity()), submit(layout, submitter=hidden_identity())
    views = {view.run_id: view for view in list_runs(layout)}
    assert (views[dead.run_id].needs_reconcile, views[dead.run_id].is_unknown) == (True, False)
    assert (views[unknown.run_id].needs_reconcile, views[unknown.run_id].is_unknown) == (False, True)


def test_a_run_is_running_whatever_its_files_age_while_its_process_lives(layout: Layout) -> None:
    spec = submit(layout)
    start(layout, spec, own_identity())
    view = read_run(layout, spec.run_id)
    assert (view.state, view.needs_reconcile, view.is_unknown) == (RunState.RUNNING, False, False)


@pytest.mark.parametrize(
    ("change", "is_dead"),
    [
        ({"start_ticks": 1}, True),  # the pid belongs to another program now
        ({"boot_id": "an earlier boot"}, True),
        ({"start_ticks": 0}, False),  # a record without an identity
        ({"pid_namespace": 1}, True),  # not visible, same kernel, lock free
        ({"machine_id": "a container made anew"}, False),  # same kernel, same namespace: says nothing
    ],
)
def test_a_runner_is_dead_by_identity_or_by_its_free_lock_and_else_unknown(
    layout: Layout, change: dict[str, object], is_dead: bool
) -> None:
    spec = submit(layout)
    start(layout, spec, msgspec.structs.replace(own_identity(), **change))
    view = read_run(layout, spec.run_id)
    assert (view.needs_reconcile, view.is_unknown) == (is_dead, not is_dead)


def test_a_held_lock_is_a_living_runner_where_its_pid_cannot_be_seen(layout: Layout) -> None:
    spec = submit(layout)
    start(layout, spec, msgspec.structs.replace(own_identity(), pid_namespace=1))
    with RunLock.acquire(layout.run(spec.run_id).lock) or pytest.fail("busy"):
        view = read_run(layout, spec.run_id)
    assert (view.state, view.needs_reconcile, view.is_unknown) == (RunState.RUNNING, False, False)


def test_an_id_is_submitted_once(layout: Layout) -> None:
    spec = submit(layout)
    assert submit_run(layout, msgspec.structs.replace(spec, task="another")) is False
    assert read_run(layout, spec.run_id).spec == spec


def test_a_run_that_was_not_submitted_is_unknown(layout: Layout) -> None:
    with pytest.raises(UnknownRunError):
        read_run(layout, new_id())


@pytest.mark.parametrize("name", ["spec", "started", "status", "result", "pending_result"])
def test_a_malformed_file_is_an_error_that_names_it_and_hides_no_other_run(layout: Layout, name: str) -> None:
    bad, good = submit(layout), submit(layout)
    start(layout, bad, own_identity())
    path: Path = getattr(layout.run(bad.run_id), name)
    replace(path, b'{\n  "x": 1\n}\n', fsync=False)
    with pytest.raises(RecordCorruptError, match=path.name):
        read_run(layout, bad.run_id)
    problems: list[tuple[str, type[PisubError]]] = []
    views = list_runs(layout, on_problem=lambda run_id, error: problems.append((run_id, type(error))))
    assert ([view.run_id for view in views], problems) == ([good.run_id], [(bad.run_id, RecordCorruptError)])


def test_a_status_that_a_power_cut_tore_reads_as_missing_and_says_so(layout: Layout) -> None:
    spec = submit(layout)
    start(layout, spec, own_identity())
    replace(layout.run(spec.run_id).status, b"", fsync=False)
    view = read_run(layout, spec.run_id)
    assert (view.state, view.status, len(view.problems)) == (RunState.RUNNING, None, 1)
    assert "status.json" in view.problems[0]


def test_a_malformed_proof_is_no_proof_and_no_error(layout: Layout) -> None:
    spec = submit(layout)
    replace(layout.run(spec.run_id).process_terminal, b"[]\n}\n", fsync=False)
    view = read_run(layout, spec.run_id)
    assert (view.proof, len(view.problems)) == (None, 1)
    proof = ProcessTerminalProof(run_id=spec.run_id, state="observed", signal="SIGKILL", observed_at=5)
    replace(layout.run(spec.run_id).process_terminal, encode_record(proof), fsync=False)
    assert read_run(layout, spec.run_id).proof == proof


def test_a_spec_of_another_run_is_refused(layout: Layout) -> None:
    spec, other = submit(layout), make_spec()
    layout.run(other.run_id).dir.mkdir(mode=0o700)
    write_new(layout.run(other.run_id).spec, encode_record(spec), fsync=False)
    with pytest.raises(RecordCorruptError):
        read_run(layout, other.run_id)


def test_a_run_directory_that_is_a_symlink_is_refused(layout: Layout, tmp_path: Path) -> None:
    spec = submit(layout)
    link = new_id()
    (layout.runs / link).symlink_to(layout.run(spec.run_id).dir)
    with pytest.raises(UnsafePathError):
        read_run(layout, link)
    with pytest.raises(UnsafePathError):
        submit_run(layout, make_spec(link))


def test_runs_are_listed_newest_first_by_session_and_finished_ones_only_on_demand(layout: Layout) -> None:
    mine = [submit(layout, run_id=new_id(at_ms=at)) for at in (1_000_000, 3_000_000, 2_000_000)]
    submit(layout, session_id="another session")
    put(layout, mine[0], StatusFile.TERMINAL, pending=False, result=True)
    ids = [spec.run_id for spec in mine]
    assert [view.run_id for view in list_runs(layout, session_id=mine[0].session_id)] == [ids[1], ids[2]]
    listed = list_runs(layout, session_id=mine[0].session_id, include_finished=True)
    assert [view.run_id for view in listed] == [ids[1], ids[2], ids[0]]
    assert (len(list_runs(layout)), len(list_runs(layout, include_finished=True))) == (3, 4)


def test_a_record_that_does_not_exist_lists_nothing(tmp_path: Path) -> None:
    assert list_runs(Layout(tmp_path / "none"), include_finished=True) == []


def test_a_prefix_means_the_only_run_that_begins_so_in_the_session_first(layout: Layout) -> None:
    early, late, other = (new_id(at_ms=at) for at in (1 << 40, 2 << 40, 2 << 40))
    submit(layout, run_id=early)
    submit(layout, run_id=late)
    submit(layout, run_id=other, session_id="another session")
    assert find_run(layout, early[:4].upper()) == early
    assert find_run(layout, late) == late
    assert find_run(layout, late[:4], session_id="another session") == other
    with pytest.raises(AmbiguousIdError) as caught:
        find_run(layout, late[:4])
    assert caught.value.candidates == tuple(sorted((late, other)))
    for text, error in ((new_id(at_ms=9), UnknownRunError), ("zzzz", UnknownRunError), ("../x", InvalidIdError)):
        with pytest.raises(error):
            find_run(layout, text)


def test_the_result_is_written_once_unless_a_power_cut_tore_it(layout: Layout) -> None:
    spec = submit(layout)
    paths = layout.run(spec.run_id)
    first, second = make_result(spec), make_result(spec, output="second")
    replace(paths.result, b'{"runId', fsync=False)
    assert [write_result(paths, first), write_result(paths, second)] == [True, False]
    assert (read_result(paths), read_pending(paths)) == (first, None)
    assert (paths.dir / "result.torn.json").read_bytes() == b'{"runId'


def test_a_status_survives_a_round_trip(layout: Layout) -> None:
    spec = submit(layout)
    start(layout, spec, own_identity())
    status = read_status(layout.run(spec.run_id))
    assert isinstance(status, RunStatus)
    assert (status.state, status.steps[0].status, status.session_id) == (RunState.RUNNING, "running", spec.session_id)


def test_between_launch_and_start_the_launched_process_counts_and_its_launcher_no_longer(tmp_path: Path) -> None:
    layout = make_layout(tmp_path)
    for process, needs_reconcile in ((own_identity(), False), (dead_identity(), True)):
        spec = make_spec(submitter=dead_identity())
        submit_run(layout, spec)
        assert read_run(layout, spec.run_id).needs_reconcile
        note = LaunchNote(run_id=spec.run_id, process=process)
        write_new(layout.run(spec.run_id).launched, encode_record(note), fsync=False)
        view = read_run(layout, spec.run_id)
        assert (view.state, view.needs_reconcile) == (RunState.QUEUED, needs_reconcile)
