from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from pisub.errors import UnknownRunError
from pisub.ids import new_id
from pisub.process import own_identity
from pisub.protocol.runs import RunState
from pisub.record.atomic import encode_record, replace, write_new
from pisub.record.ends import end_status
from pisub.record.layout import Layout
from pisub.record.lock import RunLock
from pisub.record.model import RunResult
from pisub.record.reader import list_runs, read_run
from pisub.record.reaping import Reaped, reap
from pisub.record.results import write_result
from pisub.record.retention import Removal, Skip, set_aside
from pisub.record.sessions import Outbox, claim_host_record, completion_of, last_host, post_completion
from pisub.record.status import read_status, write_status
from pisub.record.submit import submit_run
from pisub.record.subscriptions import WaitSubscription, subscribe
from pisub.record.tombstones import tombstone
from pisub.runs.spec import RunSpec
from tests.support.record_samples import SESSION, make_layout, make_result, make_spec, start, submit

DAY_MS = 24 * 3_600_000
ENDED_MS = 1_700_000_000_000
NOW_MS = ENDED_MS + 31 * DAY_MS


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return make_layout(tmp_path)


def finished(layout: Layout, *, state: RunState = RunState.COMPLETE, is_delivered: bool = True) -> RunSpec:
    """A run that was submitted, ran and ended 31 days ago."""
    spec = msgspec.structs.replace(make_spec(new_id(at_ms=ENDED_MS)))
    assert submit_run(layout, spec)
    start(layout, spec, own_identity())
    paths = layout.run(spec.run_id)
    result = msgspec.structs.replace(make_result(spec, state=state), started_at=ENDED_MS - 1, ended_at=ENDED_MS)
    end(layout, spec, result)
    post_completion(layout, completion_of(result))
    if is_delivered:
        outbox = Outbox(layout, spec.session_id)
        delivery = outbox.take(completion_of(result), f"h{spec.run_id}")
        assert delivery is not None
        outbox.done(delivery.completion)
    age(paths.dir)
    return spec


def end(layout: Layout, spec: RunSpec, result: RunResult) -> None:
    paths = layout.run(spec.run_id)
    status = read_status(paths)
    assert status is not None
    write_status(paths, end_status(status, result))
    write_result(paths, result)
    (layout.active / spec.run_id).unlink()


def age(directory: Path, at_ms: int = ENDED_MS) -> None:
    for path in (*directory.iterdir(), directory):
        os.utime(path, ns=(at_ms * 1_000_000, at_ms * 1_000_000))


def prune(layout: Layout, **options: object) -> dict[str, Skip | None]:
    return {each.run_id: each.reason for each in set_aside(layout, now_ms=NOW_MS, **options)}  # type: ignore[arg-type]


def test_a_run_that_ended_long_ago_is_set_aside_and_a_day_later_removed_from_everywhere(layout: Layout) -> None:
    spec = finished(layout)
    session = layout.session(SESSION)
    assert list(set_aside(layout, now_ms=NOW_MS)) == [Removal(spec.run_id, None)]
    with pytest.raises(UnknownRunError) as caught:
        read_run(layout, spec.run_id)
    assert caught.value.code == "gone"
    assert tombstone(layout, spec.run_id).is_dir()
    aside_ms = tombstone(layout, spec.run_id).stat().st_ctime_ns // 1_000_000
    assert list(reap(layout, now_ms=aside_ms + DAY_MS - 1)) == []
    assert list(reap(layout, now_ms=aside_ms + DAY_MS, is_dry_run=True)) == [Reaped(spec.run_id)]
    assert list(reap(layout, now_ms=aside_ms + DAY_MS)) == [Reaped(spec.run_id)]
    assert list(layout.runs.iterdir()) == []
    assert list(session.runs.iterdir()) == []
    assert list(session.done.iterdir()) == []
    assert [path.name for path in session.completions.iterdir()] == ["done"]
    with pytest.raises(UnknownRunError) as caught:
        read_run(layout, spec.run_id)
    assert caught.value.code == "unknown_run"


def test_a_dry_run_says_the_same_and_changes_nothing(layout: Layout) -> None:
    spec = finished(layout)
    assert prune(layout, is_dry_run=True) == {spec.run_id: None}
    assert read_run(layout, spec.run_id).state is RunState.COMPLETE


def spoil(layout: Layout, spec: RunSpec) -> None:
    layout.run(spec.run_id).status.write_text("{ no record }\n}\n")
    age(layout.run(spec.run_id).dir)


def mix_up(layout: Layout, spec: RunSpec) -> None:
    other = msgspec.structs.replace(spec, run_id=new_id())
    replace(layout.run(spec.run_id).spec, encode_record(other), fsync=False)


def revive(layout: Layout, spec: RunSpec) -> None:
    paths = layout.run(spec.run_id)
    paths.result.unlink()
    start_over = read_status(paths)
    assert start_over is not None
    write_status(paths, msgspec.structs.replace(start_over, state=RunState.RUNNING, ended_at=None))
    write_new(layout.active / spec.run_id, b"", fsync=False)


def hide(layout: Layout, spec: RunSpec) -> None:
    revive(layout, spec)
    paths = layout.run(spec.run_id)
    hidden = msgspec.structs.replace(own_identity(), start_ticks=0)
    status = read_status(paths)
    assert status is not None
    write_status(paths, msgspec.structs.replace(status, process=hidden))
    replace(paths.started, b"", fsync=False)


def mark(layout: Layout, spec: RunSpec) -> None:
    write_new(layout.active / spec.run_id, b"", fsync=False)


def wait_for_it(layout: Layout, spec: RunSpec) -> None:
    token = new_id()
    subscribe(
        layout,
        WaitSubscription(token=token, session_id="x", run_id=spec.run_id, requested_id="x", created_at=1, expires_at=2),
    )


def wait_unreadably(layout: Layout, spec: RunSpec) -> None:
    wait_for_it(layout, msgspec.structs.replace(spec, run_id=new_id()))
    [path] = (layout.root / "wait-subscriptions").iterdir()
    path.write_text("{ no record }\n}\n")


def have_a_child(layout: Layout, spec: RunSpec) -> None:
    submit(layout, parent_run_id=spec.run_id)


def touch(layout: Layout, spec: RunSpec) -> None:
    age(layout.run(spec.run_id).dir, NOW_MS - 29 * DAY_MS)


def lose_its_times(layout: Layout, spec: RunSpec) -> None:
    age(layout.run(spec.run_id).dir, 0)
    paths = layout.run(spec.run_id)
    paths.result.unlink()
    write_result(paths, msgspec.structs.replace(make_result(spec), started_at=0, ended_at=0))
    age(paths.dir, 0)


Change = Callable[[Layout, RunSpec], None]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (spoil, Skip.INVALID_STATUS),
        (mix_up, Skip.IDENTITY_MISMATCH),
        (revive, Skip.NON_TERMINAL),
        (hide, Skip.RUNTIME_REFERENCE),
        (mark, Skip.ACTIVE_INDEX),
        (wait_for_it, Skip.WAIT_REFERENCE),
        (wait_unreadably, Skip.WAIT_REFERENCE),
        (have_a_child, Skip.NESTED_REFERENCE),
        (touch, Skip.RECENT),
        (lose_its_times, Skip.UNKNOWN_AGE),
    ],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_a_run_that_may_be_needed_stays_and_it_is_said_why(layout: Layout, change: Change, reason: Skip) -> None:
    spec = finished(layout)
    change(layout, spec)
    assert prune(layout)[spec.run_id] is reason
    assert layout.run(spec.run_id).spec.exists()


def test_a_paused_run_is_never_old(layout: Layout) -> None:
    spec = finished(layout, state=RunState.PAUSED)
    assert prune(layout) == {spec.run_id: Skip.NON_TERMINAL}


def test_an_end_that_nobody_handled_keeps_its_run_unless_it_is_given_up(layout: Layout) -> None:
    spec = finished(layout, is_delivered=False)
    assert prune(layout) == {spec.run_id: Skip.COMPLETION_REFERENCE}
    assert prune(layout, with_undelivered=True) == {spec.run_id: None}
    assert list(reap(layout, now_ms=NOW_MS, grace_ms=0)) == [Reaped(spec.run_id)]
    assert Outbox(layout, SESSION).pending() == []


def test_a_run_whose_lock_is_held_stays(layout: Layout) -> None:
    spec = finished(layout)
    with RunLock.acquire(layout.run(spec.run_id).lock) or pytest.fail("busy"):
        age(layout.run(spec.run_id).dir)
        assert prune(layout) == {spec.run_id: Skip.RUNTIME_REFERENCE}
    age(layout.run(spec.run_id).dir)
    assert prune(layout) == {spec.run_id: None}


def test_a_live_run_that_cannot_be_read_keeps_every_run_that_it_might_name(layout: Layout) -> None:
    spec, live = finished(layout), submit(layout)
    layout.run(live.run_id).spec.write_text("{ no record }\n}\n")
    assert prune(layout)[spec.run_id] is Skip.NESTED_REFERENCE


def test_a_submission_that_was_never_finished_is_removed_with_its_marker(layout: Layout) -> None:
    spec = make_spec(new_id(at_ms=ENDED_MS))
    assert submit_run(layout, spec)
    layout.run(spec.run_id).spec.unlink()
    age(layout.run(spec.run_id).dir)
    assert prune(layout) == {spec.run_id: None}
    assert list(reap(layout, now_ms=NOW_MS, grace_ms=0)) == [Reaped(spec.run_id)]
    assert list(layout.active.iterdir()) == []


def test_the_oldest_go_first_and_no_more_than_the_limit(layout: Layout) -> None:
    specs = sorted((finished(layout) for _ in range(4)), key=lambda each: each.run_id)
    removals = list(set_aside(layout, now_ms=NOW_MS, limit=3))
    assert [each.run_id for each in removals] == [each.run_id for each in specs[:3]]


def test_runs_submitted_since_are_not_looked_at(layout: Layout) -> None:
    submit_run(layout, make_spec(new_id(at_ms=NOW_MS - DAY_MS)))
    assert list(set_aside(layout, now_ms=NOW_MS)) == []


def test_a_symlink_in_a_run_is_removed_and_what_it_leads_to_is_not(layout: Layout, tmp_path: Path) -> None:
    spec = finished(layout)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (layout.run(spec.run_id).artifacts / "link").symlink_to(outside)
    age(layout.run(spec.run_id).dir)
    assert prune(layout) == {spec.run_id: None}
    assert list(reap(layout, now_ms=NOW_MS, grace_ms=0)) == [Reaped(spec.run_id)]
    assert (outside / "kept").exists()
    assert list_runs(layout, include_finished=True) == []


def test_the_files_of_hosts_of_long_ago_are_forgotten_and_numbers_only_grow(layout: Layout) -> None:
    numbers = [claim_host_record(layout, SESSION, own_identity()) for _ in range(40)]
    assert numbers == list(range(1, 41))
    assert len(list(layout.session(SESSION).dir.glob("host.*.json"))) <= 18
    assert last_host(layout, SESSION) == (40, own_identity())
