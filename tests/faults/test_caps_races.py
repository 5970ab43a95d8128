"""Twenty processes at one cap, some of them killed in the middle: it is never exceeded, and never stuck."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pisub.record.caps import Caps, count_active, session_budget, tree_budget
from pisub.record.dirs import list_names
from pisub.record.layout import Layout
from pisub.record.submit import submit_run
from tests.support.cap_workers import Plan
from tests.support.record_samples import SESSION, make_spec

WORKERS = 20


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout(tmp_path / "home", fsync=False)
    made.prepare()
    return made


@contextlib.contextmanager
def racing(layout: Layout, caps: Caps, plans: list[Plan]) -> Iterator[list[subprocess.Popen[str]]]:
    """Start one process per plan, let all go at once, and in the end let them leave."""
    with contextlib.ExitStack() as stack:
        workers = [
            stack.enter_context(
                subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        "tests.support.cap_workers",
                        str(layout.root),
                        msgspec.json.encode(caps).decode(),
                        msgspec.json.encode(plan).decode(),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    cwd=Path(__file__).parents[2],
                )
            )
            for plan in plans
        ]
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        yield workers


def race(layout: Layout, caps: Caps, plans: list[Plan]) -> list[list[str]]:
    """Return what each process printed, line by line, when all have ended."""
    with racing(layout, caps, plans) as workers:
        return [worker.communicate(timeout=60)[0].splitlines() for worker in workers]


def submitted(layout: Layout) -> set[str]:
    """Return the runs that exist."""
    return {name for name in list_names(layout.runs) if layout.run(name).spec.exists()}


def test_twenty_processes_that_race_and_die_never_exceed_a_sessions_cap_and_never_block_it(layout: Layout) -> None:
    caps = Caps(per_session=31)
    plans = [Plan([2, 1, 2], die=(number % 3, number % 2) if number % 4 == 0 else None) for number in range(WORKERS)]
    said = race(layout, caps, plans)
    assert len(submitted(layout)) <= 31
    whole = [line.split() for lines in said for line in lines if line != "full"]
    assert {run_id for line in whole for run_id in line} <= submitted(layout)
    # Whoever comes later gets exactly what is left: what the killed had claimed and not submitted is free again.
    left = 31 - len(submitted(layout))
    (lines,) = race(layout, caps, [Plan([1] * (left + 2))])
    assert [line == "full" for line in lines] == [False] * left + [True] * 2
    assert (len(submitted(layout)), session_budget(layout, SESSION).used) == (31, 31)


def test_twenty_processes_that_race_and_die_never_exceed_a_trees_cap(layout: Layout) -> None:
    root = msgspec.structs.replace(make_spec(), max_spawns_per_run=23)
    submit_run(layout, root)
    plans = [
        Plan([1, 3], root=root.run_id, die=(1, number % 3) if number % 5 == 0 else None) for number in range(WORKERS)
    ]
    race(layout, Caps(), plans)
    below = len(submitted(layout)) - 1
    assert below <= 23
    (lines,) = race(layout, Caps(), [Plan([1] * 24, root=root.run_id)])
    assert sum(line != "full" for line in lines) == 23 - below
    assert tree_budget(layout, root).used == 23


def test_the_active_runs_of_twenty_racing_processes_stay_within_the_cap_and_the_killed_make_room(
    layout: Layout,
) -> None:
    caps = Caps(active=5)
    with racing(layout, caps, [Plan([1], stay=True) for _ in range(WORKERS)]) as workers:
        said = [worker.stdout.readline().strip() for worker in workers if worker.stdout is not None]
        assert sum(line != "full" for line in said) == 5
        assert count_active(layout, SESSION) == 5
        holders = [worker for worker, line in zip(workers, said, strict=True) if line != "full"]
        for worker in holders[:2]:
            worker.kill()
            worker.wait(timeout=60)
        assert count_active(layout, SESSION) == 3
        (lines,) = race(layout, caps, [Plan([1, 1, 1])])
        # The submitter of these lives on until it has ended: then they, too, will never start.
        assert [line == "full" for line in lines] == [False, False, True]
        assert count_active(layout, SESSION) == 3
    assert count_active(layout, SESSION) == 0
