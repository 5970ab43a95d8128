"""Processes that die, or are refused, at one change of the disk: forked from one preloaded image, so they are cheap.

``python -m tests.support.crash_image`` reads one JSON list of jobs per line, forks a child for each, a few at once, and
answers with a list of what became of them. What a child was about to do it writes to the job's trace, line by line.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import json
import os
import re
import signal
import subprocess
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from pisub.config import Settings
from pisub.ids import is_id
from pisub.process import own_identity
from pisub.record.atomic import exists, read_bytes
from pisub.record.disk import Disk
from pisub.record.journal_reader import JournalReader
from pisub.record.layout import Layout
from pisub.record.questions import read_ask, record_outcome
from pisub.record.reader import read_files, read_run
from pisub.record.sessions import Outbox, completion_of
from pisub.record.submit import submit_run
from pisub.runs.reconcile import reconcile, reconcile_all
from pisub.runs.spec import AgentSnapshot, LaunchMessage, OnNoHost, RunnerSpec, RunSpec
from pisub.transport.dealer import Dealer
from tests.support.record_samples import NOW_MS, answered

ROOT = Path(__file__).parents[2]
SESSION = "a session"
AGENT = """
async def main(child):
    child.log("begins")
    with child.tool("look", path="here"):
        pass
    result = await child.ask("Go on?", why="it matters")
    child.write("report.txt", "all of it")
    child.log(str(result.status))
    return "done: " + str(result.answers[0] and result.answers[0].value)
"""
_ID = re.compile(r"\b[0-7][0-9a-hjkmnp-tv-z]{25}\b|\b[0-9a-f]{32}\b")
#: Children that run at once: the runs mostly wait.
_AT_ONCE = 10


#: Kind and name of an operation, and its how-manieth of that kind and name it is, from 1.
Point = tuple[str, str, int]


class Job(msgspec.Struct, kw_only=True):
    """One child.

    Attributes:
        action: Name of a function below.
        home: The state root.
        runtime_dir: Where the broker is.
        run_id: The run.
        trace: File for the operations, one per line, each before it is made.
        point: The operation before which it dies, or from which on it is refused; None is never.
        after: It dies when it has just made this operation.
        refuse: Name of an errno instead of death.
        span: How many operations are refused.
        fsync: Whether flushes are made.
        agent: The agent's target.
    """

    action: str
    home: str
    runtime_dir: str = ""
    run_id: str
    trace: str
    point: Point | None = None
    after: tuple[str, str] | None = None
    refuse: str = ""
    span: int = 1
    fsync: bool = True
    agent: str = ""


class Outcome(msgspec.Struct, kw_only=True):
    """What became of a child: its exit code, negative for a signal; its operations; what it saw that may not be."""

    code: int
    trace: list[tuple[str, str]]
    problems: list[str]

    @property
    def points(self) -> list[Point]:
        """Every operation that was begun, told apart by how often it came before."""
        seen: Counter[tuple[str, str]] = Counter()
        found: list[Point] = []
        for each in self.trace:
            seen[each] += 1
            found.append((*each, seen[each]))
        return found

    @property
    def made(self) -> list[tuple[str, str]]:
        """The operations that were made: all but the one before which it died."""
        return self.trace[:-1] if self.code else self.trace


# In the test's process. ------------------------------------------------------------------------------------------


class Image:
    """The preloaded process, asked from a test."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def carry_out(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Have the jobs done, a few at once."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(jobs) + b"\n")
        self._process.stdin.flush()
        codes = json.loads(self._process.stdout.readline())
        return [_outcome(job, code) for job, code in zip(jobs, codes, strict=True)]


@contextlib.contextmanager
def preloaded() -> Iterator[Image]:
    """Start the image."""
    with subprocess.Popen(
        [sys.executable, "-m", __name__], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            yield Image(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()


def _outcome(job: Job, code: int) -> Outcome:
    trace: list[tuple[str, str]] = []
    problems: list[str] = []
    for line in Path(job.trace).read_text().splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "!":
            problems.append(rest)
        else:
            trace.append((kind, rest))
    return Outcome(code=code, trace=trace, problems=problems)


# In the child. ---------------------------------------------------------------------------------------------------


class Fault:
    """Counts operations, looks at the files before each, and ends or refuses the chosen one."""

    def __init__(self, job: Job, layout: Layout) -> None:
        self._job = job
        self._layout = layout
        self._trace = os.open(job.trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._seen: Counter[tuple[str, str]] = Counter()
        self._refusals_left = 0
        self._lock = threading.RLock()
        self._last: tuple[str, str] | None = None
        self._is_looking = False
        self._witness = Witness(layout, job.run_id)

    def __call__(self, operation: str, name: str) -> None:
        with self._lock:
            if self._is_looking:
                return
            key = str(operation), _ID.sub("ID", name)
            self._seen[key] += 1
            self.note(" ".join(key))
            self._is_looking = True
            try:
                for problem in self._witness.look():
                    self.note(f"! before {key}: {problem}")
            except BaseException:
                self.note(f"! before {key}: {traceback.format_exc(limit=-3)!r}")
                raise
            finally:
                self._is_looking = False
            last, self._last = self._last, key
            if self._job.after is not None and last == self._job.after:
                os.kill(os.getpid(), signal.SIGKILL)
            if (*key, self._seen[key]) == self._job.point:
                if not self._job.refuse:
                    os.kill(os.getpid(), signal.SIGKILL)
                self._refusals_left = self._job.span
            if self._refusals_left and operation != "send":
                self._refusals_left -= 1
                number = getattr(errno, self._job.refuse)
                raise OSError(number, os.strerror(number), name)

    def note(self, line: str) -> None:
        os.write(self._trace, line.encode() + b"\n")


class Witness:
    """A reader that looks whenever the writer is between two operations, and knows what may not be.

    It also is the human: an open question is answered by file.
    """

    def __init__(self, layout: Layout, run_id: str) -> None:
        self._layout = layout
        self._run_id = run_id
        self._rank = 0
        self._end: object = None

    def look(self) -> Iterator[str]:
        layout, run_id = self._layout, self._run_id
        paths = layout.run(run_id)
        if not exists(paths.spec):
            return
        files = read_files(layout, paths)
        if not files.reading.is_allowed:
            yield f"a forbidden pair: {files.status and files.status.state} {bool(files.pending)} {bool(files.result)}"
        view = read_run(layout, run_id)
        rank = {"queued": 0, "running": 1}.get(view.state, 2)
        if rank < self._rank:
            yield f"it is {view.state} again"
        self._rank = rank
        if self._end not in (None, (view.state, view.result)):
            yield f"the end changed from {self._end} to {(view.state, view.result)}"
        if rank == 2:
            self._end = (view.state, view.result)
        session = layout.session(view.spec.session_id)
        posted = [each for each in _names(session.completions) if each.startswith(run_id)] + _names(session.done)
        if not posted and not exists(layout.active / run_id):
            yield "no completion, and no marker"
        if posted and files.result is None:
            yield "a completion without a result"
        reader = JournalReader(paths.events)
        numbers = [event.seq for event in reader.read_new()]
        if numbers != list(range(1, len(numbers) + 1)) or reader.skipped:
            yield f"the journal has {numbers} and {reader.skipped} bad lines"
        yield from self._look_at_asks()

    def _look_at_asks(self) -> Iterator[str]:
        run = self._layout.run(self._run_id)
        for ask_id in filter(is_id, _names(run.asks)):
            ask = run.ask(ask_id)
            if not exists(ask.record):
                continue
            if not exists(ask.outcome) and read_bytes(self._layout.open_asks / ask_id) is None:
                yield "an open ask that nobody finds"
            view = read_ask(self._layout, self._run_id, ask_id)
            if view.outcome is None and not view.outcomes and view.record.asker == own_identity():
                record_outcome(self._layout, self._run_id, answered(ask_id, 1, "yes"))
                os.kill(os.getpid(), signal.SIGUSR2)


def _names(path: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        return [each.name for each in path.iterdir()]
    return []


def run(job: Job, layout: Layout) -> None:
    """Submit a run and be its runner."""
    from runner.app import run as carry_out  # noqa: PLC0415  # loaded in the image, so it costs nothing

    layout.prepare()
    cwd = str(Path(job.agent.rpartition(":")[0]).parent)
    spec = RunSpec(
        run_id=job.run_id,
        session_id=SESSION,
        agent=AgentSnapshot(name="tester", runner=RunnerSpec(type="python", target=job.agent)),
        task="a task",
        cwd=cwd,
        submitter=own_identity(),
        submitted_at=NOW_MS,
        on_no_host=OnNoHost.WAIT,
        stop_grace_ms=300,
    )
    while not exists(layout.run(job.run_id).spec):
        try:
            submit_run(layout, spec)
        except OSError:
            if not job.refuse:
                raise
    message = LaunchMessage(run_id=job.run_id, home=job.home, runtime_dir=job.runtime_dir, environ={}, cwd=cwd)
    settings = Settings(home=Path(job.home), runtime_dir=Path(job.runtime_dir), fsync=job.fsync, log_level="error")
    assert carry_out(message, settings=settings) == 0


def repair(job: Job, layout: Layout) -> None:
    """Reconcile everything."""
    reconcile_all(layout, now_ms=NOW_MS)
    reconcile(layout, job.run_id, now_ms=NOW_MS)


def deliver(job: Job, layout: Layout) -> None:
    """Be a host: take each end, handle it, say that it is done."""
    hand_over(layout, "g1")


def repost(job: Job, layout: Layout) -> None:
    """Post an end that may be posted, or done, already."""
    from pisub.record.sessions import post_completion  # noqa: PLC0415  # only here

    result = read_run(layout, job.run_id).result
    assert result is not None
    post_completion(layout, completion_of(result))


def hand_over(layout: Layout, generation: str) -> None:
    """Deliver what is pending to a handler that writes down each call."""
    outbox = Outbox(layout, SESSION)
    for completion in outbox.pending():
        delivery = outbox.take(completion, generation)
        if delivery is not None:
            with (layout.root / "handled").open("a") as log:
                log.write(f"{delivery.delivery_key} {delivery.redelivered}\n")
            outbox.done(completion)


_ACTIONS = {each.__name__: each for each in (run, repair, deliver, repost)}


def _child(job: Job) -> None:
    layout = Layout(Path(job.home), fsync=job.fsync)
    fault = Fault(job, layout)
    send = Dealer.send

    @functools.wraps(send)
    def observed(dealer: Dealer, frame: bytes) -> bool:
        fault("send", "frame")
        return send(dealer, frame)

    Dealer.send = observed  # type: ignore[method-assign]  # the wire's one place; this process is about to die
    with Disk.observed_by(fault):
        _ACTIONS[job.action](job, layout)


def _fork(job: Job) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        log = os.open(f"{job.trace}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for target, source in ((0, null), (1, log), (2, log)):
            os.dup2(source, target)
        _child(job)
        code = 0
    except BaseException:  # noqa: BLE001  # the end of this process
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Serve jobs until the input ends."""
    import runner.app  # noqa: F401, PLC0415  # the point of an image

    own_identity()
    gc.collect()
    gc.freeze()
    for line in sys.stdin.buffer:
        jobs = msgspec.json.decode(line, type=list[Job])
        waiting = list(enumerate(jobs))
        running: dict[int, int] = {}
        codes: dict[int, int] = {}
        while waiting or running:
            while waiting and len(running) < _AT_ONCE:
                number, job = waiting.pop(0)
                running[_fork(job)] = number
            pid, status = os.wait()
            codes[running.pop(pid)] = os.waitstatus_to_exitcode(status)
        print(json.dumps([codes[number] for number in range(len(jobs))]), flush=True)  # noqa: T201  # the answer


if __name__ == "__main__":
    main()
