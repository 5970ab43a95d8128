"""Where every file of the record lies. Owns names and nothing else: no file is read or written here.

An id is checked before any path is built from it, so no text from outside can name a place of its own.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from pisub.config import Settings
from pisub.ids import check_id, session_key
from pisub.paths import ensure_private_dir, state_root


class RunPaths(msgspec.Struct, frozen=True):
    """The files of one run, under ``runs/<run_id>/``.

    Attributes:
        run_id: The run's id, checked.
        dir: Its directory.
        fsync: Whether what must survive a power cut is flushed.
    """

    run_id: str
    dir: Path
    fsync: bool = True

    @property
    def spec(self) -> Path:
        """What the run was asked to do. Create-once; its existence is the submission."""
        return self.dir / "spec.json"

    @property
    def launched(self) -> Path:
        """The process that will be the runner, said by its launcher. Create-once; matters until ``started``."""
        return self.dir / "launched.json"

    @property
    def started(self) -> Path:
        """The one start of the run. Create-once."""
        return self.dir / "started.json"

    @property
    def status(self) -> Path:
        """Where the run stands. Replaced by the holder of the lock alone."""
        return self.dir / "status.json"

    @property
    def result(self) -> Path:
        """How the run ended. Create-once."""
        return self.dir / "result.json"

    @property
    def pending_result(self) -> Path:
        """The result before it is public: the first file of an end."""
        return self.dir / "result.pending.json"

    @property
    def events(self) -> Path:
        """The journal, one event per line."""
        return self.dir / "events.jsonl"

    @property
    def lock(self) -> Path:
        """The lock that the runner holds for its life."""
        return self.dir / "run.lock"

    @property
    def process_terminal(self) -> Path:
        """What the runner's parent saw when it ended. Create-once."""
        return self.dir / "process-terminal.json"

    @property
    def control(self) -> Path:
        """Directory of requests to the runner."""
        return self.dir / "control"

    @property
    def asks(self) -> Path:
        """Directory of the child's questions."""
        return self.dir / "asks"

    @property
    def supervisor(self) -> Path:
        """Directory of what the child said to its supervisor. Made with the first request."""
        return self.dir / "supervisor"

    @property
    def artifacts(self) -> Path:
        """Directory of files that the child wrote on purpose."""
        return self.dir / "artifacts"

    @property
    def stdout_log(self) -> Path:
        """The runner's own standard output."""
        return self.dir / "runner.stdout.log"

    @property
    def stderr_log(self) -> Path:
        """The runner's own standard error."""
        return self.dir / "runner.stderr.log"

    def output(self, number: int) -> Path:
        """Return the file with the whole text of one step; steps count from 0."""
        return self.dir / f"output-{number:d}.log"

    def request(self, kind: str) -> Path:
        """Return the slot of one control request."""
        return self.control / f"{kind}.json"

    def accepted(self, kind: str) -> Path:
        """Return where a control request lies once the runner took it."""
        return self.control / f"{kind}.accepted.json"

    @property
    def session(self) -> Path:
        """What a run that resumes this one needs to know: the child's own session file."""
        return self.dir / "session.jsonl"

    def resumed(self, number: int) -> Path:
        """Return the file that says which run resumed this one as the n-th, from 1. Create-once."""
        return self.dir / f"resumed.{number:d}.json"

    @property
    def steer_requests(self) -> Path:
        """Directory of messages to the child, one file each. Made by the first sender."""
        return self.control / "steer-requests"

    @property
    def steer_capabilities(self) -> Path:
        """Directory with one file per child that says whether it can be steered."""
        return self.control / "steer-capabilities"

    @property
    def steer_acks(self) -> Path:
        """Directory with one directory per child, which holds its acknowledgements."""
        return self.control / "steer-acks"

    @property
    def steer_inbox_closed(self) -> Path:
        """The run takes no messages any more. Create-once."""
        return self.control / "steer-inbox-closed.json"

    @property
    def steer_recovery(self) -> Path:
        """Directory of a revival for a message that met no answer."""
        return self.control / "steer-recovery"

    @property
    def awaits(self) -> Path:
        """Directory with one file for each wait of the run's processes for other runs."""
        return self.dir / "awaits"

    @property
    def tree(self) -> Path:
        """Directory with one empty file per run below this one, where it is the first of a tree."""
        return self.dir / "tree"

    def ask(self, ask_id: str) -> AskPaths:
        """Return the files of one ask.

        Raises:
            InvalidIdError: ``ask_id`` is not an id.
        """
        return AskPaths(self.asks / check_id(ask_id, what="ask id"))


class AskPaths(msgspec.Struct, frozen=True):
    """The files of one ask, under ``runs/<run_id>/asks/<ask_id>/``."""

    dir: Path

    @property
    def record(self) -> Path:
        """The batch of questions. Create-once, by the runner."""
        return self.dir / "ask.json"

    @property
    def outcome(self) -> Path:
        """The result that the child got. Create-once, by the runner or, after its death, by the reconciler."""
        return self.dir / "ask.outcome.json"

    def question(self, number: int) -> Path:
        """Return the file of one question's outcome; questions count from 1. Create-once, by whoever is first."""
        return self.dir / f"{number:d}.outcome.json"


class SessionPaths(msgspec.Struct, frozen=True):
    """The files of one session, under ``sessions/<key>/``; the key is a digest of the id."""

    session_id: str
    dir: Path

    @property
    def session_file(self) -> Path:
        """The session's id in words. Create-once."""
        return self.dir / "session.json"

    @property
    def runs(self) -> Path:
        """Directory with one empty file per run of the session."""
        return self.dir / "runs"

    @property
    def completions(self) -> Path:
        """Directory of ends that the session's host has not handled yet."""
        return self.dir / "completions"

    @property
    def done(self) -> Path:
        """Directory with one empty file per end that was handled. Permanent, and never listed."""
        return self.completions / "done"

    @property
    def caps(self) -> Path:
        """What the session's cap of runs was at its first one. Create-once."""
        return self.dir / "caps.json"

    @property
    def caps_lock(self) -> Path:
        """The lock of whoever counts against a cap and submits."""
        return self.dir / "caps.lock"

    @property
    def spawns(self) -> Path:
        """Directory with one empty file per run that was counted against the session's cap."""
        return self.dir / "spawns"

    @property
    def grants(self) -> Path:
        """Directory of the latest grants on top of the session's cap, numbered from 1."""
        return self.dir / "grants"

    @property
    def ceilings(self) -> Path:
        """Directory with one file per capability ceiling that a process put over the session."""
        return self.dir / "ceilings"

    @property
    def hosts(self) -> Path:
        """Directory of the ``host.<n>.json`` files."""
        return self.dir

    def host(self, number: int) -> Path:
        """Return the file of the session's n-th host."""
        return self.dir / f"host.{number:d}.json"


class Layout(msgspec.Struct, frozen=True):
    """The state root and what lies in it.

    Attributes:
        root: The state root.
        fsync: Whether specs, answers, results and terminal statuses are flushed to the disk.
    """

    root: Path
    fsync: bool = True

    @classmethod
    def of(cls, settings: Settings) -> Layout:
        """Return the layout that the settings name. Touches nothing."""
        return cls(state_root(settings), settings.fsync)

    @property
    def runs(self) -> Path:
        """Directory with one directory per run."""
        return self.root / "runs"

    @property
    def sessions(self) -> Path:
        """Directory with one directory per session."""
        return self.root / "sessions"

    @property
    def active(self) -> Path:
        """Directory with one empty file per run whose end is not wholly recorded."""
        return self.root / "active"

    @property
    def open_asks(self) -> Path:
        """Directory with one file per open ask; it holds the id of the run that asks."""
        return self.root / "open-asks"

    @property
    def open_contacts(self) -> Path:
        """Directory with one file per open request to a supervisor; it holds the id of the run. Made with the first."""
        return self.root / "open-contacts"

    def run(self, run_id: str) -> RunPaths:
        """Return the files of a run, which need not exist.

        Raises:
            InvalidIdError: ``run_id`` is not an id.
        """
        return RunPaths(check_id(run_id), self.runs / run_id, self.fsync)

    def session(self, session_id: str) -> SessionPaths:
        """Return the files of a session, which need not exist.

        Raises:
            InvalidArgumentError: ``session_id`` cannot be one.
        """
        return SessionPaths(session_id, self.sessions / session_key(session_id))

    def prepare(self) -> None:
        """Make the root and its directories, private; idempotent.

        Raises:
            UnsafePathError: One of them is a symlink or another user's.
        """
        for directory in (self.root, self.runs, self.sessions, self.active, self.open_asks):
            ensure_private_dir(directory)
