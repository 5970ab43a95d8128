"""Time as a value that is passed in: nothing below the programs' ``app`` modules asks the machine for it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What the shells need to know about time."""

    def monotonic(self) -> float:
        """Seconds that never step; for durations and deadlines."""
        ...

    def wall_ms(self) -> int:
        """Unix time in milliseconds; for people and records, never for deciding who lives."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def monotonic(self) -> float:
        """Return ``time.monotonic()``."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """Return Unix time in whole milliseconds."""
        return time.time_ns() // 1_000_000


class WorkClock:
    """Time that a run has worked: it stands still while the run waits for a human, and while the machine sleeps.

    A gap between two ticks longer than ``MAX_TICK_S`` is a suspension (SIGSTOP, a closed lid), not work, and counts as
    ``MAX_TICK_S``. Feed it monotonic time with ``tick``; it reads no clock itself.
    """

    MAX_TICK_S = 2.0

    def __init__(self, now: float, *, limit_s: float | None = None) -> None:
        self._last = now
        self._worked_s = 0.0
        self._waited_s = 0.0
        self._waiting = 0
        self.limit_s = limit_s

    def tick(self, now: float) -> None:
        """Account for the time since the last tick."""
        gap = min(max(now - self._last, 0.0), self.MAX_TICK_S)
        self._last = now
        if self._waiting:
            self._waited_s += gap
        else:
            self._worked_s += gap

    def start_waiting(self, now: float) -> None:
        """A human is now waited for; calls nest."""
        self.tick(now)
        self._waiting += 1

    def stop_waiting(self, now: float) -> None:
        """One wait for a human is over."""
        self.tick(now)
        self._waiting = max(0, self._waiting - 1)

    @property
    def is_waiting(self) -> bool:
        """Whether the clock stands still for a human."""
        return self._waiting > 0

    @property
    def worked_s(self) -> float:
        """Seconds of work so far."""
        return self._worked_s

    @property
    def waited_s(self) -> float:
        """Seconds spent waiting for a human so far."""
        return self._waited_s

    @property
    def remaining_s(self) -> float | None:
        """Seconds of work left before ``limit_s``; None without a limit; never below 0."""
        return None if self.limit_s is None else max(0.0, self.limit_s - self._worked_s)

    @property
    def is_expired(self) -> bool:
        """Whether the limit is reached."""
        return self.limit_s is not None and self._worked_s >= self.limit_s
