from __future__ import annotations

import os
from pathlib import Path

import pytest

from pisub.ids import new_id
from pisub.protocol.runs import RunState
from pisub.record.atomic import encode_record, sweep_temp, write_new
from pisub.record.commit import CommitStep
from pisub.record.journal import JournalReader
from pisub.record.layout import Layout
from pisub.record.lock import RunLock, is_held
from pisub.record.questions import open_ask
from pisub.record.reader import read_run
from pisub.record.sessions import Outbox, completion_of, post_completion
from pisub.runs.reconcile import reconcile
from tests.support.record_samples import (
    NOW_MS,
    SESSION,
    dead_identity,
    make_ask,
    make_layout,
    make_result,
    make_spec,
    start,
    submit,
)
from tests.support.record_workers import Filled, race, workers


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return make_layout(tmp_path)


def temporary_files(directory: Path) -> list[str]:
    return [path.name for path in directory.rglob("*.tmp")]


def test_eight_creators_of_each_of_200_files_have_one_winner_each(layout: Layout) -> None:
    wins = race([("create", layout.active, 200)] * 8)
    assert sorted(number for each in wins for number in each) == list(range(200))
    assert {path.stat().st_size % 100 for path in layout.active.iterdir()} == {0}
    assert temporary_files(layout.root) == []


def test_four_writers_and_four_readers_never_see_a_torn_record(layout: Layout) -> None:
    path = layout.root / "f.json"
    write_new(path, encode_record(Filled(writer=1, filler="")), fsync=False)
    calls = [("rewrite", path, 300)] * 4 + [("reread", path, 600)] * 4
    assert race(calls) == [300] * 4 + [600] * 4


def test_a_run_id_submitted_by_eight_is_submitted_once(layout: Layout) -> None:
    run_id = new_id()
    assert sorted(race([("submit_same", layout.root, run_id)] * 8)) == [False] * 7 + [True]
    view = read_run(layout, run_id)
    assert (view.state, view.needs_reconcile) == (RunState.QUEUED, True), "its submitter, whoever won, is dead"


def test_reconcilers_that_race_give_one_end_one_line_and_one_completion(layout: Layout) -> None:
    specs = [submit(layout) for _ in range(5)]
    for spec in specs:
        start(layout, spec, dead_identity())
        race([("reconcile_run", layout.root, spec.run_id, NOW_MS + 1_000 + n) for n in range(4)])
        view = read_run(layout, spec.run_id)
        assert (view.state, view.needs_reconcile) == (RunState.FAILED, False)
        lines = JournalReader(layout.run(spec.run_id).events).read_new()
        assert [(event.seq, event.type) for event in lines] == [(1, "subagent.run.repaired_stale")]
    assert sorted(each.run_id for each in Outbox(layout, SESSION).pending()) == sorted(s.run_id for s in specs)
    assert temporary_files(layout.root) == []


@pytest.mark.parametrize("step", [None, *CommitStep])
def test_a_runner_killed_after_any_step_of_its_commit_has_still_completed(
    layout: Layout, step: CommitStep | None
) -> None:
    spec = submit(layout)
    printed = race([("end_run", layout.root, spec.run_id, "" if step is None else step.value)])
    assert printed == ["ended" if step is None else None]
    outcomes = race([("reconcile_run", layout.root, spec.run_id, NOW_MS + 9_999)] * 2)
    view = reconcile(layout, spec.run_id, now_ms=NOW_MS + 9_999)
    assert (view.state, view.result, view.needs_reconcile) == (RunState.COMPLETE, make_result(spec), False)
    # One of the two may have met the other at work: then the end is still on its way, and it is said so.
    assert ["complete", NOW_MS + 1_000] in outcomes
    assert all(each in (["complete", NOW_MS + 1_000], ["running", None]) for each in outcomes)
    assert Outbox(layout, SESSION).pending() == [completion_of(make_result(spec))]
    lines = [event.type for event in JournalReader(layout.run(spec.run_id).events).read_new()]
    assert lines in (["subagent.run.completed"], ["subagent.run.repaired_stale"])


def test_a_lock_dies_with_its_holder(layout: Layout) -> None:
    path = layout.root / "run.lock"
    assert race([("hold_lock", path)]) == [None]
    assert not is_held(path)
    with RunLock.acquire(path) or pytest.fail("busy"):
        pass


def test_a_temporary_file_of_a_killed_writer_is_swept_and_a_living_writers_is_not(layout: Layout) -> None:
    with workers([("create", layout.active, 0)]) as (process,):
        # The name that the worker would use, as if it stood between write and link.
        tag = tag_of(process.pid)
        (layout.active / f".x.{tag}.aa.tmp").write_bytes(b"half")
        assert sweep_temp(layout.active) == 0
    assert sweep_temp(layout.active) == 1
    assert list(layout.active.iterdir()) == []


def tag_of(pid: int) -> str:
    from pisub.process import identify  # noqa: PLC0415  # only here
    from pisub.record.atomic import _digest  # noqa: PLC0415  # the form of a temporary name

    found = identify(pid)
    assert found is not None
    parts = (found.pid, found.start_ticks, found.pid_namespace, _digest(found.boot_id), _digest(found.machine_id))
    return "-".join(map(str, parts))


def test_a_journal_on_a_full_disk_keeps_whole_lines_and_loses_none_when_there_is_room_again(layout: Layout) -> None:
    spec = submit(layout)
    assert race([("fill_journal", layout.root, spec.run_id, 1_777)]) == [[True, True]]
    events = JournalReader(layout.run(spec.run_id).events).read_new()
    assert [(event.seq, event.data["n"]) for event in events] == [(n + 1, n) for n in range(40)]


def test_eight_who_answer_one_question_agree_on_one_answer(layout: Layout) -> None:
    spec = submit(layout)
    for _ in range(3):
        ask = make_ask(spec)
        open_ask(layout, ask)
        answers = race([("answer", layout.root, spec.run_id, ask.ask_id, f"value {n}") for n in range(8)])
        assert len(set(answers)) == 1


def test_of_two_hosts_that_take_an_end_at_once_none_is_handled_twice_without_the_flag(layout: Layout) -> None:
    for _ in range(60):
        post_completion(layout, completion_of(make_result(make_spec())))
    taken = race([("take", layout.root, "g1"), ("take", layout.root, "g2")])
    assert all(len(each) == 60 for each in taken)
    assert [key for key in taken[0] if not taken[0][key] and not taken[1][key]] == []
    twice = race([("take", layout.root, "g3"), ("take", layout.root, "g3")])
    assert sorted((*twice[0], *twice[1])) == sorted(taken[0]), "one generation takes each end once"
    assert {*twice[0].values(), *twice[1].values()} == {True}


def test_hosts_that_claim_at_once_get_different_numbers(layout: Layout) -> None:
    numbers = race([("claim_hosts", layout.root, 20)] * 4)
    assert all(each == sorted(each) for each in numbers), "each of one host is higher than the one before it"
    taken = [number for each in numbers for number in each]
    assert len(set(taken)) == len(taken) == 80  # there may be gaps: who finds a higher one gives its own back


def test_listing_touches_no_run_that_has_ended(layout: Layout) -> None:
    going_on = [submit(layout) for _ in range(2)]
    session = layout.session(SESSION)
    for n in range(3_000):
        run_id = new_id(at_ms=n)
        os.mkdir(layout.runs / run_id, 0o700)  # noqa: PTH102  # with its mode
        (session.runs / run_id).touch()
    [[count, in_session, touched]] = race([("list_and_count", layout.root)])
    assert (count, in_session) == (2, 2)
    # Directories are opened once for a listing; each run that goes on costs its dozen files, and nothing else.
    assert str(layout.runs) not in touched
    assert str(session.runs) not in touched
    assert len(touched) < 150
    assert all(spec.run_id in " ".join(touched) for spec in going_on)
