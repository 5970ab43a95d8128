"""A disk that refuses for a while, at any operation: the run goes on, and its last state is written when it can be."""

from __future__ import annotations

import itertools
from pathlib import Path

from pisub.config import Settings
from pisub.ids import new_id
from pisub.launch import ensure_broker
from pisub.protocol.runs import RunState
from pisub.record.disk import Operation
from pisub.record.journal_reader import JournalReader
from pisub.record.layout import Layout
from pisub.record.reader import read_run
from pisub.record.sessions import Outbox
from tests.support.crash_image import AGENT, SESSION, Job, Outcome, preloaded

ERRORS = ("ENOSPC", "EDQUOT", "EMFILE", "EACCES")
#: So many operations in a row are refused.
SPAN = 4
_BATCH = 48


def test_a_run_outlives_a_disk_that_refuses_at_any_of_its_operations(settings: Settings, tmp_path: Path) -> None:
    ensure_broker(settings)
    agent = tmp_path / "agent.py"
    agent.write_text(AGENT)
    numbers = itertools.count()

    def job(**fields: object) -> Job:
        home = tmp_path / f"run-{next(numbers)}"
        places = {"home": str(home), "runtime_dir": str(settings.runtime_dir), "trace": f"{home}.trace"}
        return Job(action="run", run_id=new_id(), agent=f"{agent}:main", span=SPAN, **places, **fields)  # type: ignore[arg-type]  # one dict of fields

    with preloaded() as image:
        [unharmed] = image.carry_out([job()])
        points = [point for point in unharmed.points if point[0] != "send"]
        # Every point once, every error at every kind of operation.
        jobs = [job(point=point, refuse=ERRORS[number % 4]) for number, point in enumerate(points)]
        kinds = {point[0] for point in points}
        jobs += [
            job(point=next(each for each in reversed(points) if each[0] == kind), refuse=error)
            for kind, error in itertools.product(sorted(kinds), ERRORS)
        ]
        for first in range(0, len(jobs), _BATCH):
            batch = jobs[first : first + _BATCH]
            for each, outcome in zip(batch, image.carry_out(batch), strict=True):
                check(each, outcome)
    assert kinds >= {str(each) for each in Operation} - {"truncate", "remove-dir"}


def check(job: Job, outcome: Outcome) -> None:
    what = f"{job.point} {job.refuse}: {Path(f'{job.trace}.log').read_text()}"
    assert (outcome.code, outcome.problems) == (0, []), what
    layout = Layout(Path(job.home), fsync=False)
    view = read_run(layout, job.run_id)
    assert view.result is not None, what
    assert view.status is not None, what
    assert (view.state, view.result.error, view.status.state) == (RunState.COMPLETE, None, RunState.COMPLETE), what
    assert view.needs_reconcile is False, what
    events = JournalReader(layout.run(job.run_id).events).read_new()
    assert [event.seq for event in events] == list(range(1, len(events) + 1)), what
    assert events[-1].type == "subagent.run.completed", what
    assert [each.run_id for each in Outbox(layout, SESSION).pending()] == [job.run_id], what
