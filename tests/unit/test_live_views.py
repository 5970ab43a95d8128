"""Which runs are listed as going on."""

from __future__ import annotations

from pathlib import Path

import pytest

from pisub.client.views import current_views, live_views
from pisub.process import own_identity
from pisub.record.commit import commit_end
from pisub.record.ends import end_status, initial_status
from pisub.record.layout import Layout
from pisub.record.lock import RunLock
from tests.support.record_samples import NOW_MS, dead_identity, make_layout, make_result, start, submit

LATER_MS = NOW_MS + 500_000


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return make_layout(tmp_path)


def test_a_run_that_ended_by_itself_is_not_listed_while_its_marker_goes_and_one_found_dead_is(layout: Layout) -> None:
    alive, ended, dead = submit(layout), submit(layout), submit(layout)
    start(layout, alive, own_identity())
    start(layout, ended, own_identity())
    lock = RunLock.acquire(layout.run(ended.run_id).lock)
    assert lock is not None
    with lock:
        result = make_result(ended)
        commit_end(layout, lock, end_status(initial_status(ended, own_identity(), started_at=NOW_MS), result), result)
    (layout.active / ended.run_id).touch()
    start(layout, dead, dead_identity())
    assert {view.run_id for view in live_views(layout, now_ms=LATER_MS)} == {alive.run_id, dead.run_id}
    (layout.active / ended.run_id).touch()
    assert {view.run_id for view in current_views(layout, now_ms=LATER_MS)} >= {alive.run_id, ended.run_id}
