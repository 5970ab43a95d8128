"""A clock for tests. Wherever pisub takes a ``pisub.clock.Clock``, this can stand."""

from __future__ import annotations


class FakeClock:
    """Time that passes only when the test says so.

    Args:
        monotonic: Where monotonic time begins, in seconds.
        wall_ms: Where Unix time begins, in milliseconds.
    """

    def __init__(self, *, monotonic: float = 1_000.0, wall_ms: int = 1_700_000_000_000) -> None:
        self._monotonic = monotonic
        self._wall_ms = wall_ms

    def monotonic(self) -> float:
        """Return the time that the test has let pass, from the beginning."""
        return self._monotonic

    def wall_ms(self) -> int:
        """Return the Unix time that belongs to it."""
        return self._wall_ms

    def advance(self, seconds: float) -> None:
        """Let time pass, on both clocks. Timers of an event loop do not notice."""
        if seconds < 0:
            raise ValueError("time does not go backwards: use step_wall for a clock that somebody sets")
        self._monotonic += seconds
        self._wall_ms += round(seconds * 1000)

    def step_wall(self, milliseconds: int) -> None:
        """Set the wall clock forward or back, as a person or NTP does; monotonic time is not touched."""
        self._wall_ms += milliseconds
