"""Processes that race for one record, or die in a write: ``python -m tests.support.record_workers NAME …``.

Each says ``ready``, waits for a line, works, and prints what became of it as one line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pisub.process import own_identity
from pisub.protocol.base import Record
from pisub.record.atomic import encode_record, read_record, replace, write_new
from pisub.record.commit import CommitStep, commit_end
from pisub.record.journal import Journal
from pisub.record.layout import Layout
from pisub.record.lock import RunLock
from pisub.record.questions import read_ask, record_outcome
from pisub.record.reader import list_runs
from pisub.record.sessions import Outbox, claim_host_record
from pisub.record.status import read_status
from pisub.record.submit import submit_run
from pisub.runs.reconcile import reconcile
from tests.support.record_samples import NOW_MS, SESSION, answered, make_result, make_spec, start

ROOT = Path(__file__).parents[2]


class Filled(Record, frozen=True, kw_only=True):
    """A record whose halves must agree: a torn or mixed read would show."""

    writer: int
    filler: str


# In the test's process. ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def workers(calls: Sequence[Sequence[object]]) -> Iterator[list[subprocess.Popen[str]]]:
    """Start one process per call and wait until every one is ready; they go at ``release``."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", __name__, *map(str, call)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for call in calls
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield processes
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


def race(calls: Sequence[Sequence[object]]) -> list[object]:
    """Run the calls at once, each in a process; return what each printed, None for one that was killed."""
    with workers(calls) as processes:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        outputs = [process.communicate(timeout=60)[0] for process in processes]
        codes = [process.returncode for process in processes]
    assert all(code in (0, -signal.SIGKILL) for code in codes), codes
    return [json.loads(output) if output else None for output in outputs]


# In the worker's process. ----------------------------------------------------------------------------------------


def create(directory: str, count: str) -> object:
    """Try to create each of many files; return which were won."""
    own = str(os.getpid()).encode()
    return [n for n in range(int(count)) if write_new(Path(directory) / f"f{n}", own * 100, fsync=False)]


def rewrite(path: str, count: str) -> object:
    """Replace one file again and again."""
    for n in range(int(count)):
        replace(Path(path), encode_record(Filled(writer=os.getpid(), filler=f"{os.getpid()}" * (n % 700))), fsync=False)
    return int(count)


def reread(path: str, count: str) -> object:
    """Read one file again and again; return how many reads gave a whole record."""
    good = 0
    for _ in range(int(count)):
        record = read_record(Path(path), Filled)
        good += record is not None and record.filler.replace(str(record.writer), "") == ""
    return good


def submit_same(root: str, run_id: str) -> object:
    """Submit a run; return whether this process did."""
    return submit_run(Layout(Path(root), fsync=False), make_spec(run_id))


def reconcile_run(root: str, run_id: str, now_ms: str) -> object:
    """Reconcile one run; return the state and the end that it sees."""
    view = reconcile(Layout(Path(root), fsync=False), run_id, now_ms=int(now_ms))
    return [view.state.value, view.result.ended_at if view.result else None]


def end_run(root: str, run_id: str, step: str) -> object:
    """Be a runner that starts, ends its run, and is killed after a step of the commit."""
    layout = Layout(Path(root), fsync=False)
    paths = layout.run(run_id)

    def kill_at(done: CommitStep) -> None:
        if done.value == step:
            os.kill(os.getpid(), signal.SIGKILL)

    lock = RunLock.acquire(paths.lock)
    assert lock is not None
    with lock, Journal.open(paths, run_id) as journal:
        spec = make_spec(run_id)
        start(layout, spec, own_identity())
        status = read_status(paths)
        assert status is not None
        lines = [("subagent.run.completed", {"status": "complete"})]
        commit_end(layout, lock, status, make_result(spec), journal=journal, lines=lines, on_step=kill_at)
    return "ended"


def hold_lock(path: str) -> object:
    """Take a lock and be killed with it."""
    assert RunLock.acquire(Path(path)) is not None
    os.kill(os.getpid(), signal.SIGKILL)
    return None


def fill_journal(root: str, run_id: str, limit: str) -> object:
    """Append to a journal whose file may not grow past a limit; then lift the limit and go on."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with Journal.open(Layout(Path(root), fsync=False).run(run_id), run_id) as journal:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
        sizes: list[bool] = []
        for n in range(40):
            journal.append("subagent.child.log", {"n": n, "text": "x" * 50}, ts=NOW_MS)
            if n % 4 == 3:
                with contextlib.suppress(OSError):
                    journal.flush()
                sizes.append((Path(root) / "runs" / run_id / "events.jsonl").read_bytes().endswith(b"\n"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        was_waiting = journal.is_waiting
        journal.flush()
    return [was_waiting, all(sizes)]


def answer(root: str, run_id: str, ask_id: str, value: str) -> object:
    """Answer the second question of an ask; return whose answer it has."""
    layout = Layout(Path(root), fsync=False)
    winner = record_outcome(layout, run_id, answered(ask_id, 2, value))
    assert read_ask(layout, run_id, ask_id).outcomes[2] == winner
    return winner.answer.value if winner.answer else None


def take(root: str, generation: str) -> object:
    """Take every end of the session; return the keys and whether they were marked as redelivered."""
    outbox = Outbox(Layout(Path(root), fsync=False), SESSION)
    found = [outbox.take(completion, generation) for completion in outbox.pending()]
    return {each.delivery_key: each.redelivered for each in found if each is not None}


def claim_hosts(root: str, count: str) -> object:
    """Claim host numbers."""
    layout = Layout(Path(root), fsync=False)
    return [claim_host_record(layout, SESSION, own_identity()) for _ in range(int(count))]


def list_and_count(root: str) -> object:
    """List the runs that go on; return how many there are and every path below the root that was touched."""
    touched: list[str] = []

    def on_event(name: str, arguments: tuple[object, ...]) -> None:
        if name in ("open", "os.listdir", "os.scandir") and arguments:
            touched.append(str(arguments[0]))

    sys.addaudithook(on_event)
    layout = Layout(Path(root), fsync=False)
    runs = list_runs(layout)
    in_session = list_runs(layout, session_id=SESSION)
    return [len(runs), len(in_session), touched]


_CALLS: dict[str, Callable[..., object]] = {
    each.__name__: each
    for each in (
        create,
        rewrite,
        reread,
        submit_same,
        reconcile_run,
        end_run,
        hold_lock,
        fill_journal,
        answer,
        take,
        claim_hosts,
        list_and_count,
    )
}

if __name__ == "__main__":
    print("ready", flush=True)  # noqa: T201  # the handshake
    sys.stdin.readline()
    print(json.dumps(_CALLS[sys.argv[1]](*sys.argv[2:])))  # noqa: T201  # the outcome
