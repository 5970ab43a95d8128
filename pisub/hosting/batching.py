"""When ends are told: a failure at once, successes quietly and in groups. Pure: no input or output, no clock.

A failure first sends off what its own session holds, so nobody reads of the failure before the successes that came
earlier. What is held is not taken yet: who stops while something is held leaves it where it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar

import msgspec


class Item(Protocol):
    """What is grouped: the end of a run."""

    @property
    def session_id(self) -> str:
        """Ends of different sessions are never told together."""
        ...


T = TypeVar("T", bound=Item)


class BatchTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long successes are held, in milliseconds (contract, runs 6.3).

    Attributes:
        is_enabled: False tells each end at once.
        debounce_ms: A group goes out when nothing has come for so long.
        max_wait_ms: But no later than this after its first.
        straggler_debounce_ms: Both are shorter for what comes soon after a group went out.
        straggler_max_wait_ms: As above.
        straggler_window_ms: How soon that is; strictly less.
    """

    is_enabled: bool = True
    debounce_ms: int = 150
    max_wait_ms: int = 1_000
    straggler_debounce_ms: int = 75
    straggler_max_wait_ms: int = 400
    straggler_window_ms: int = 2_000


def batch_times(*levels: Mapping[str, object]) -> BatchTimes:
    """Return the times of the first level that has each; a value that is no whole number above 0 counts as missing."""
    values: dict[str, int] = {}
    for name in BatchTimes.__struct_fields__:
        for level in levels:
            value = level.get(name)
            if type(value) is bool if name == "is_enabled" else type(value) is int and value >= 1:
                values[name] = value  # type: ignore[assignment]  # of the field's own type, by the line above
                break
    return BatchTimes(**values)  # type: ignore[arg-type]  # a bool is a bool's value


class Group(msgspec.Struct, Generic[T], frozen=True):
    """Ends of one session that are told together.

    Attributes:
        items: In the order in which they came.
        is_quiet: All are plain successes: no need to interrupt anybody.
    """

    items: tuple[T, ...]
    is_quiet: bool


class _Session(Generic[T]):
    """What one session holds, and when it was last told something."""

    def __init__(self) -> None:
        self.held: list[T] = []
        self.first_at = 0.0
        self.due_at = 0.0
        self.is_straggling = False
        self.told_at: float | None = None


class Batcher(Generic[T]):
    """Decides what is told when. Times are monotonic seconds, passed in.

    Args:
        times: How long successes are held.
    """

    def __init__(self, times: BatchTimes | None = None) -> None:
        self._times = times or BatchTimes()
        self._sessions: dict[str, _Session[T]] = {}

    @property
    def held(self) -> tuple[T, ...]:
        """What is held now. Forget the batcher, and it was never taken."""
        return tuple(item for session in self._sessions.values() for item in session.held)

    def add(self, item: T, now: float, *, is_success: bool) -> list[Group[T]]:
        """Take an end; return what is to be told now, in order."""
        session = self._sessions.setdefault(item.session_id, _Session())
        if not self._times.is_enabled:
            return [self._tell(session, (item,), now, is_quiet=is_success)]
        if not is_success:
            groups = self._release(session, now)
            return [*groups, self._tell(session, (item,), now, is_quiet=False)]
        if not session.held:
            session.first_at = now
            window_s = self._times.straggler_window_ms / 1000
            session.is_straggling = session.told_at is not None and now - session.told_at < window_s
        session.held.append(item)
        session.due_at = self._due_at(session, now)
        return self.tick(now)

    def tick(self, now: float) -> list[Group[T]]:
        """Return the groups whose time has come."""
        due = [session for session in self._sessions.values() if session.held and now >= session.due_at]
        return [group for session in due for group in self._release(session, now)]

    def next_deadline(self) -> float | None:
        """Return when to call ``tick`` at the latest; None while nothing is held."""
        return min((session.due_at for session in self._sessions.values() if session.held), default=None)

    def _due_at(self, session: _Session[T], now: float) -> float:
        times = self._times
        debounce_ms = times.straggler_debounce_ms if session.is_straggling else times.debounce_ms
        max_wait_ms = times.straggler_max_wait_ms if session.is_straggling else times.max_wait_ms
        return min(now + debounce_ms / 1000, session.first_at + max_wait_ms / 1000)

    def _release(self, session: _Session[T], now: float) -> list[Group[T]]:
        held, session.held = tuple(session.held), []
        return [self._tell(session, held, now, is_quiet=True)] if held else []

    def _tell(self, session: _Session[T], items: tuple[T, ...], now: float, *, is_quiet: bool) -> Group[T]:
        session.told_at = now
        return Group(items, is_quiet)
