"""A run, a repair and a delivery, killed before every single change of the disk and every message that they make.

The points are enumerated: each is counted by the record's own file layer, and the next number is tried until the work
ends before it is reached. Beside the work a reader looks at the files before each operation.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from pisub.config import Settings
from pisub.errors import UnknownRunError
from pisub.ids import new_id
from pisub.launch import ensure_broker
from pisub.protocol.runs import RunState
from pisub.record.commit import CLOSING_TYPES
from pisub.record.disk import Operation
from pisub.record.journal_reader import JournalReader
from pisub.record.layout import Layout
from pisub.record.reader import list_runs, read_run
from pisub.record.sessions import Outbox
from pisub.record.submit import submit_run
from pisub.runs.reconcile import reconcile, reconcile_all
from tests.support.crash_image import AGENT, SESSION, Image, Job, Outcome, Point, hand_over, preloaded
from tests.support.record_samples import NOW_MS, make_spec

_BATCH = 24
_LATER_MS = NOW_MS + 60_000


@pytest.fixture
def image() -> Iterator[Image]:
    with preloaded() as image:
        yield image


class Enumeration:
    """Jobs that differ in the operation that they do not survive."""

    def __init__(self, image: Image, base: Path, *, template: Path | None = None, **fields: str) -> None:
        self._image = image
        self._base = base
        self._template = template
        self._fields = fields
        self._count = 0

    def job(self, point: Point | None = None) -> Job:
        """Return a new job in a record of its own."""
        self._count += 1
        home = self._base / f"{self._fields['action']}-{self._count}"
        if self._template is not None:
            shutil.copytree(self._template, home)
        return Job(home=str(home), trace=f"{home}.trace", point=point, **({"run_id": new_id()} | self._fields))

    def carry_out(self, jobs: list[Job]) -> list[Outcome]:
        """Have jobs done; none may see what may not be, or end otherwise than it should."""
        outcomes = self._image.carry_out(jobs)
        for job, outcome in zip(jobs, outcomes, strict=True):
            log = Path(f"{job.trace}.log").read_text()
            assert outcome.code in (0, -signal.SIGKILL), (job.point, outcome.code, log)
            assert outcome.problems == [], (job.point, outcome.problems)
        return outcomes

    def points(self) -> Iterator[tuple[Job, Outcome]]:
        """Yield one job per operation, killed before it: those of an unharmed job, and what any other comes upon.

        How often a status or a frame is written depends on time, so a point is known by its kind, its name, and how
        often it came before; a job that never comes to its point ends well, and is yielded too.
        """
        unharmed = self.job()
        [outcome] = self.carry_out([unharmed])
        assert outcome.code == 0
        yield unharmed, outcome
        known = dict.fromkeys(outcome.points)
        waiting = list(known)
        while waiting:
            jobs = [self.job(point) for point in waiting[:_BATCH]]
            del waiting[:_BATCH]
            for job, outcome in zip(jobs, self.carry_out(jobs), strict=True):
                yield job, outcome
                waiting += [point for point in outcome.points if point not in known]
                known |= dict.fromkeys(outcome.points)


def by(operation: Operation, name: str) -> tuple[str, str]:
    return operation.value, name


SUBMITTED = by(Operation.LINK, "spec.json")
STARTED = by(Operation.LINK, "started.json")
ASKED = by(Operation.LINK, "ask.json")
ENDED = by(Operation.RENAME, "result.pending.json")


def expected(outcome: Outcome) -> tuple[RunState, str | None]:
    if ENDED in outcome.made:
        return RunState.COMPLETE, None
    return RunState.FAILED, "runner-died" if STARTED in outcome.made else "never-started"


def check_end(layout: Layout, run_id: str, end: tuple[RunState, str | None]) -> None:
    """What must hold of a run once it was reconciled, whatever happened before."""
    view = read_run(layout, run_id)
    assert view.result is not None
    assert (view.state, view.result.reason, view.needs_reconcile) == (*end, False)
    assert view.status is not None
    assert (view.status.state, view.problems) == (view.state, ())
    assert list_runs(layout) == []
    events = JournalReader(layout.run(run_id).events).read_new()
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.type for event in events if event.type in CLOSING_TYPES] == [events[-1].type]
    for name in view.result.artifacts:
        assert (layout.run(run_id).dir / name).is_file()


def check_nothing_left(layout: Layout) -> None:
    assert [path.name for path in layout.root.rglob(".*")] == []
    assert list(layout.active.iterdir()) == []
    assert list(layout.open_asks.iterdir()) == []


def check_delivered_once(layout: Layout, run_id: str, state: RunState) -> None:
    assert [each.delivery_key for each in Outbox(layout, SESSION).pending()] == [f"{run_id}:{state}"]
    for generation in ("h1", "h2"):
        hand_over(layout, generation)
    assert (layout.root / "handled").read_text().splitlines() == [f"{run_id}:{state} False"]
    assert Outbox(layout, SESSION).pending() == []


def reconcile_in_turn(layout: Layout, run_id: str) -> None:
    for _ in range(2):
        reconcile(layout, run_id, now_ms=_LATER_MS)


def reconcile_at_once(layout: Layout, run_id: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: reconcile(layout, run_id, now_ms=_LATER_MS), range(2)))
    reconcile(layout, run_id, now_ms=_LATER_MS)


def agent_file(directory: Path) -> str:
    path = directory / "agent.py"
    path.write_text(AGENT)
    return f"{path}:main"


def test_a_run_killed_before_any_operation_or_message_ends_in_the_one_allowed_way(
    settings: Settings, image: Image, tmp_path: Path
) -> None:
    ensure_broker(settings)
    runs = Enumeration(image, tmp_path, action="run", runtime_dir=str(settings.runtime_dir), agent=agent_file(tmp_path))
    died_at: set[tuple[str, str]] = set()
    seen: set[tuple[str, str]] = set()
    for number, (job, outcome) in enumerate(runs.points()):
        layout = Layout(Path(job.home), fsync=False)
        layout.prepare()
        seen.update(outcome.trace)
        if outcome.code:
            died_at.add(outcome.trace[-1])
        if SUBMITTED not in outcome.made:
            with pytest.raises(UnknownRunError):
                read_run(layout, job.run_id)
            assert reconcile_all(layout, now_ms=_LATER_MS) == []
            assert submit_run(layout, make_spec(job.run_id)), "the id can be used again"
            continue
        (reconcile_at_once if number % 3 == 0 else reconcile_in_turn)(layout, job.run_id)
        reconcile_all(layout, now_ms=_LATER_MS)
        check_end(layout, job.run_id, expected(outcome))
        check_delivered_once(layout, job.run_id, expected(outcome)[0])
        check_nothing_left(layout)
    assert seen == died_at, "every operation of every file was met"
    assert {SUBMITTED, STARTED, ASKED, ENDED, ("send", "frame")} <= died_at


def run_until(image: Image, settings: Settings, base: Path, after: tuple[str, str]) -> tuple[Path, str]:
    """Return the record of a run that was killed when it had just made an operation."""
    base.mkdir()
    runs = Enumeration(image, base, action="run", runtime_dir=str(settings.runtime_dir), agent=agent_file(base))
    job = msgspec.structs.replace(runs.job(), after=after)
    [outcome] = runs.carry_out([job])
    assert (outcome.code, outcome.made[-1]) == (-signal.SIGKILL, after)
    return Path(job.home), job.run_id


@pytest.mark.parametrize("after", [SUBMITTED, STARTED, ASKED, ENDED, by(Operation.LINK, "result.json")], ids=str)
def test_a_repair_killed_before_any_operation_is_finished_by_the_next(
    settings: Settings, image: Image, tmp_path: Path, after: tuple[str, str]
) -> None:
    template, run_id = run_until(image, settings, tmp_path / "template", after)
    repairs = Enumeration(image, tmp_path, action="repair", run_id=run_id, template=template)
    end = (RunState.COMPLETE, None) if after[1].startswith("result") else None
    for number, (job, _) in enumerate(repairs.points()):
        layout = Layout(Path(job.home), fsync=False)
        (reconcile_at_once if number % 3 == 0 else reconcile_in_turn)(layout, run_id)
        reconcile_all(layout, now_ms=_LATER_MS)
        end = end or (RunState.FAILED, "never-started" if after == SUBMITTED else "runner-died")
        check_end(layout, run_id, end)
        check_delivered_once(layout, run_id, end[0])
        check_nothing_left(layout)


def _handled(layout: Layout) -> list[bool]:
    log = layout.root / "handled"
    return [line.endswith("True") for line in log.read_text().splitlines()] if log.exists() else []


@pytest.mark.parametrize("action", ["deliver", "repost"])
def test_a_host_killed_before_any_operation_loses_no_end_and_doubles_none_without_saying_so(
    settings: Settings, image: Image, tmp_path: Path, action: str
) -> None:
    template, run_id = run_until(image, settings, tmp_path / "template", by(Operation.LINK, "result.json"))
    reconcile(Layout(template, fsync=False), run_id, now_ms=_LATER_MS)
    for job, _ in Enumeration(image, tmp_path, action=action, run_id=run_id, template=template).points():
        layout = Layout(Path(job.home), fsync=False)
        was_done = (layout.session(SESSION).done / f"{run_id}.complete").exists()
        before = _handled(layout)
        for generation in ("h1", "h2"):
            hand_over(layout, generation)
        calls = _handled(layout)
        assert calls[0] is False or not before, "the first call that anybody saw says nothing of an earlier one"
        assert all(calls[1:]), "every further one does"
        assert len(calls) == (1 if was_done or not before else 2), job.point
        assert Outbox(layout, SESSION).pending() == []
        completions = layout.session(SESSION).completions
        assert [path.name for path in completions.iterdir()] == ["done"]
        check_nothing_left(layout)


def test_the_observer_is_told_of_every_kind_of_operation(image: Image, settings: Settings, tmp_path: Path) -> None:
    ensure_broker(settings)
    runs = Enumeration(image, tmp_path, action="run", runtime_dir=str(settings.runtime_dir), agent=agent_file(tmp_path))
    [outcome] = runs.carry_out([runs.job()])
    kinds = {kind for kind, _ in outcome.trace}
    assert kinds >= {"create", "write", "sync", "link", "rename", "unlink", "make-dir", "send"}
