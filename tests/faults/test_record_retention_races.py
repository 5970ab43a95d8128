"""Retention against somebody who goes on with the same run: the whole run, or the word that it is gone; never half."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pisub.errors import UnknownRunError
from pisub.ids import new_id
from pisub.protocol.runs import RunState
from pisub.record.commit import commit_end
from pisub.record.ends import initial_status
from pisub.record.layout import Layout
from pisub.record.lock import RunLock
from pisub.record.reader import read_run
from pisub.record.reaping import reap
from pisub.record.retention import Skip, set_aside
from pisub.record.submit import submit_run
from tests.support.record_samples import dead_identity, make_layout, make_result, make_spec

RACES = 200
NOW_MS = 1_900_000_000_000


def finished(layout: Layout) -> str:
    spec = make_spec(new_id(at_ms=1_000_000))
    assert submit_run(layout, spec)
    paths = layout.run(spec.run_id)
    with RunLock.acquire(paths.lock) or open("missing") as lock:  # noqa: PTH123  # it is free
        assert isinstance(lock, RunLock)
        commit_end(layout, lock, initial_status(spec, dead_identity(), started_at=1), make_result(spec))
    (paths.dir / "session.jsonl").write_text("what a resume goes on with")
    for path in (*paths.dir.iterdir(), paths.dir):
        os.utime(path, (1_000_000, 1_000_000))
    return spec.run_id


def resume(layout: Layout, run_id: str) -> str:
    """Do what a resume does with its source: hold its lock, read it, take its session along."""
    paths = layout.run(run_id)
    try:
        lock = RunLock.acquire(paths.lock, wait_s=1.0)
        if lock is None:
            return "busy"
        with lock:
            assert read_run(layout, run_id).state is RunState.COMPLETE
            return (paths.dir / "session.jsonl").read_text()
    except (FileNotFoundError, UnknownRunError):
        try:
            read_run(layout, run_id)
        except UnknownRunError as error:
            return error.code
        raise


def test_of_a_resume_and_a_removal_at_once_the_resume_has_the_whole_run_or_is_told_that_it_is_gone(
    tmp_path: Path,
) -> None:
    layout = make_layout(tmp_path)
    seen: set[tuple[str, Skip | None]] = set()
    with ThreadPoolExecutor(2) as pool:
        for number in range(RACES):
            run_id = finished(layout)
            barrier = threading.Barrier(2)

            def remove(run_id: str = run_id, barrier: threading.Barrier = barrier) -> Skip | None:
                barrier.wait()
                return next(each.reason for each in set_aside(layout, now_ms=NOW_MS, with_undelivered=True))

            def go_on(run_id: str = run_id, barrier: threading.Barrier = barrier) -> str:
                barrier.wait()
                return resume(layout, run_id)

            first, second = (remove, go_on) if number % 2 else (go_on, remove)
            results = [pool.submit(first), pool.submit(second)]
            got, removed = [each.result() for each in (results if number % 2 == 0 else results[::-1])]
            assert (got, removed) in {
                ("what a resume goes on with", None),
                ("what a resume goes on with", Skip.RUNTIME_REFERENCE),
                ("gone", None),
            }
            seen.add((got, removed))
            list(set_aside(layout, now_ms=NOW_MS, older_than_ms=0, with_undelivered=True))
            list(reap(layout, now_ms=NOW_MS, grace_ms=0))
    assert list(layout.runs.iterdir()) == []
    assert len(seen) > 1, "both were first sometimes"
