"""What the record costs: a session's opening beside many finished runs, ps, one look, a status write, a journal line.

A status write is compared with the bare calls that it is made of; the rest are times of one operation.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.harness import Report, Sample, Side, compare, machine
from pisub.client.views import current_view, current_views
from pisub.ids import new_id
from pisub.process import own_identity
from pisub.protocol.runs import RunState
from pisub.record.atomic import encode_record
from pisub.record.commit import commit_end
from pisub.record.ends import initial_status
from pisub.record.journal import Journal
from pisub.record.layout import Layout
from pisub.record.lock import RunLock
from pisub.record.model import RunResult
from pisub.record.questions import list_open_asks
from pisub.record.sessions import Outbox, completion_of, last_host
from pisub.record.status import write_status
from pisub.record.submit import submit_run
from pisub.runs.spec import AgentSnapshot, RunnerSpec, RunSpec

_SESSION: Final = "benchmark"
_NOW_MS: Final = 1_800_000_000_000


class Repeated:
    """One operation, done again and again."""

    def __init__(self, case: str, operation: Callable[[], object]) -> None:
        self.case = case
        self._operation = operation

    def measure(self, k: int, seconds: float) -> Sample:
        """Do it for so long."""
        del k
        latencies: list[float] = []
        begin = time.monotonic()
        while not latencies or time.monotonic() < begin + seconds:
            before = time.perf_counter()
            self._operation()
            latencies.append((time.perf_counter() - before) * 1000)
        return Sample(count=len(latencies), elapsed_s=time.monotonic() - begin, latencies_ms=latencies)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare this benchmark's arguments."""
    parser.add_argument("--runs", type=int, default=20_000, help="finished runs in the record (default 20,000)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default 5)")
    parser.add_argument("--seconds", type=float, default=0.3, help="of each in each round (default 0.3)")


def run(args: argparse.Namespace) -> Report:
    """Measure."""
    with tempfile.TemporaryDirectory(prefix="psb-") as base:
        layout = Layout(Path(base) / "state", fsync=False)
        layout.prepare()
        run_ids = plant(layout, args.runs)
        live = submit(layout)
        paths = layout.run(live.run_id)
        status = initial_status(live, own_identity(), started_at=_NOW_MS)
        data, target = encode_record(status), Path(base) / "bare.json"

        def bare() -> None:
            temporary = target.with_suffix(".tmp")
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.write(descriptor, data)
            os.close(descriptor)
            temporary.rename(target)

        with Journal.open(paths, live.run_id) as journal:

            def append() -> None:
                journal.append("subagent.child.log", {"text": "one line of output"}, ts=_NOW_MS)
                journal.flush()

            sides: list[Side] = [
                Repeated("pisub status write", lambda: write_status(paths, status)),
                Repeated("bare temp + rename", bare),
                Repeated("pisub journal append", append),
                Repeated("pisub session opening", lambda: open_session(layout)),
                Repeated("pisub ps", lambda: current_views(layout, now_ms=_NOW_MS)),
                Repeated("pisub exact look", lambda: current_view(layout, run_ids[0], now_ms=_NOW_MS)),
            ]
            rows = compare(sides, ks=[1], rounds=args.rounds, seconds=args.seconds)
        # Only the bare calls are a rival of anything here.
        rows = [row for row in rows if row.against in (None, "bare temp + rename")]
    return Report(benchmark="record", machine=machine(), rows=rows)


def open_session(layout: Layout) -> None:
    """Do what a host does when it takes a session."""
    last_host(layout, _SESSION)
    current_views(layout, now_ms=_NOW_MS, session_id=_SESSION)
    Outbox(layout, _SESSION).pending()
    list_open_asks(layout, session_id=_SESSION)


def submit(layout: Layout) -> RunSpec:
    """Submit a run of this living process."""
    spec = RunSpec(
        run_id=new_id(),
        session_id=_SESSION,
        agent=AgentSnapshot(name="benchmark", runner=RunnerSpec(type="python", target="none:none")),
        task="a task",
        cwd="/",
        submitter=own_identity(),
        submitted_at=_NOW_MS,
    )
    submit_run(layout, spec)
    return spec


def finish(layout: Layout) -> str:
    """Write a run that has ended and whose end was handled; return its id."""
    spec = submit(layout)
    result = RunResult(
        run_id=spec.run_id,
        session_id=_SESSION,
        agent=spec.agent.name,
        state=RunState.COMPLETE,
        success=True,
        exit_code=0,
        output="done",
        started_at=_NOW_MS,
        ended_at=_NOW_MS,
    )
    lock = RunLock.acquire(layout.run(spec.run_id).lock)
    assert lock is not None
    with lock:
        commit_end(layout, lock, initial_status(spec, own_identity(), started_at=_NOW_MS), result)
    session = layout.session(_SESSION)
    completion = completion_of(result)
    name = f"{completion.run_id}.{completion.state}"
    (session.completions / f"{name}.json").rename(session.done / name)
    return spec.run_id


def plant(layout: Layout, count: int) -> list[str]:
    """Write many runs like one that has ended, by plain calls; return their ids."""
    first = finish(layout)
    model, session = layout.run(first), layout.session(_SESSION)
    files = {path.name: path.read_bytes() for path in (model.spec, model.status, model.result)}
    run_ids = [first]
    for _ in range(count - 1):
        run_id = new_id()
        directory = layout.run(run_id).dir
        directory.mkdir(mode=0o700)
        for name, data in files.items():
            descriptor = os.open(directory / name, os.O_WRONLY | os.O_CREAT, 0o600)
            os.write(descriptor, data.replace(first.encode(), run_id.encode()))
            os.close(descriptor)
        for index in (session.runs / run_id, session.done / f"{run_id}.complete"):
            os.close(os.open(index, os.O_WRONLY | os.O_CREAT, 0o600))
        run_ids.append(run_id)
    return run_ids
