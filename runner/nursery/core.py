"""What the nursery remembers and decides: whose children it has, when it leaves, whom it stops listening to.

No process, socket or clock here: pids and times come in as arguments.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from .reaper import Runner

#: Answers that one launcher may leave unread before no further launch is taken from it (decisions.md).
MAX_UNREAD_ANSWERS: Final = 16
#: Coroners at work at a time. Each is a fork that reads and writes files; a thousand deaths at once are queued.
MAX_CORONERS: Final = 8
#: A nursery leaves after this long without a runner (decisions.md).
IDLE_EXIT_S: Final = 60.0
#: How often a nursery looks whether its files are still those that it has loaded.
FILES_CHECK_S: Final = 30.0
#: How often it looks for runners that do not obey a stop. A look is six failed stats a runner: 6 ms for a thousand.
ENFORCE_S: Final = 5.0


class NurseryCore:
    """The nursery's state."""

    def __init__(self, now: float, *, idle_exit_s: float = IDLE_EXIT_S) -> None:
        self._idle_exit_s = idle_exit_s
        self._idle_since = now
        self._runners: dict[int, Runner] = {}
        self._dead: deque[int] = deque()
        self._held: set[int] = set()
        self._fresh: list[Runner] = []
        self._strangers: set[int] = set()
        self._adopted: dict[int, tuple[int, ...]] = {}
        self._coroners: dict[int, int] = {}
        self._checked_at = now
        self._enforced_at = now
        self.is_stopping = False

    @property
    def runner_count(self) -> int:
        """Runners that live, or whose end is not on record yet."""
        return len(self._runners)

    def started(self, runner: Runner) -> None:
        """A runner was forked."""
        self._runners[runner.process.pid] = runner

    def died(self, pid: int) -> bool:
        """A child of ours is a zombie. False if it is no runner, and can be reaped at once.

        A runner stays a zombie until its coroner is done: until then readers can tell that its end is being written.
        """
        if pid not in self._runners:
            return False
        if pid not in self._held:
            self._held.add(pid)
            self._dead.append(pid)
            self._fresh.append(self._runners[pid])
        return True

    def living(self) -> list[int]:
        """Return the children whose end was not seen yet: runners and coroners."""
        return [*(pid for pid in self._runners if pid not in self._held), *self._coroners]

    def fresh_deaths(self) -> list[Runner]:
        """Return the runners that have died since this was asked last."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def note_children(self, children: list[int], killed: list[Runner], left: list[Runner]) -> None:
        """Say which children there are just after deaths, before anything else can become one.

        A runner adopts what its own descendants leave, so a child that was not forked here comes from a runner that is
        dead. One that was not there at the deaths before belongs to these: to those that were killed, which could not
        clean up; where some left by themselves it may be meant to stay, and only those are told.
        """
        strangers = {pid for pid in children if pid not in self._runners and pid not in self._coroners}
        new = tuple(sorted(strangers - self._strangers))
        self._strangers = strangers
        for runner in left or killed:
            self._adopted[runner.process.pid] = new

    def adopted_from(self, runner: Runner) -> tuple[int, ...]:
        """Return the children that came from a dead runner."""
        return self._adopted.get(runner.process.pid, ())

    def should_enforce(self, now: float) -> bool:
        """Whether it is time to look for runners that do not obey; saying yes counts as having looked."""
        if not self._runners or now - self._enforced_at < ENFORCE_S:
            return False
        self._enforced_at = now
        return True

    def living_runners(self) -> list[Runner]:
        """Return the runners whose end was not seen yet."""
        return [runner for pid, runner in self._runners.items() if pid not in self._held]

    @property
    def is_burying(self) -> bool:
        """Whether dead runners wait for a coroner."""
        return bool(self._dead)

    def next_case(self) -> Runner | None:
        """Return a dead runner whose coroner can be started now; it counts as taken."""
        if not self._dead or len(self._coroners) >= MAX_CORONERS:
            return None
        return self._runners[self._dead.popleft()]

    def coroner_started(self, pid: int, runner: Runner) -> None:
        """A coroner works on a runner's end."""
        self._coroners[pid] = runner.process.pid

    def coroner_of(self, pid: int) -> Runner | None:
        """Return the case of the coroner with this pid; None if it is none."""
        case = self._coroners.get(pid)
        return None if case is None else self._runners[case]

    def closed(self, runner: Runner, now: float) -> None:
        """A runner's end is on record and its process reaped."""
        pid = runner.process.pid
        self._runners.pop(pid, None)
        self._held.discard(pid)
        self._adopted.pop(pid, None)
        self._coroners = {coroner: case for coroner, case in self._coroners.items() if case != pid}
        if not self._runners:
            self._idle_since = now

    def stop(self) -> None:
        """Take no more launches; leave with the last runner."""
        self.is_stopping = True

    def should_check_files(self, now: float) -> bool:
        """Whether it is time to look at our files again; saying yes counts as having looked."""
        if self.is_stopping or now - self._checked_at < FILES_CHECK_S:
            return False
        self._checked_at = now
        return True

    def touched(self, now: float) -> None:
        """A launcher asked for something: idleness begins again."""
        self._idle_since = now

    def may_leave(self, now: float) -> bool:
        """Whether nothing holds the nursery any more."""
        if self._runners:
            return False
        return self.is_stopping or now - self._idle_since >= self._idle_exit_s

    def timeout_s(self, now: float) -> float:
        """How long to sleep when nothing happens."""
        files_s = max(self._checked_at + FILES_CHECK_S - now, 0.0)
        if self._runners:
            enforce_s = max(self._enforced_at + ENFORCE_S - now, 0.0)
            return enforce_s if self.is_stopping else min(files_s, enforce_s)
        return min(files_s, max(self._idle_since + self._idle_exit_s - now, 0.0))


class AnswerQueue:
    """Answers that a launcher has not taken. While it is long, nothing more is read from that launcher."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()

    def add(self, answer: bytes) -> None:
        """Queue an answer."""
        self._waiting.append(answer)

    def first(self) -> bytes | None:
        """Return the answer to send next, without removing it."""
        return self._waiting[0] if self._waiting else None

    def sent(self) -> None:
        """The first answer was taken."""
        self._waiting.popleft()

    @property
    def is_full(self) -> bool:
        """Whether the launcher must take answers before it may ask again."""
        return len(self._waiting) >= MAX_UNREAD_ANSWERS

    def __bool__(self) -> bool:
        """Whether any answer waits."""
        return bool(self._waiting)
