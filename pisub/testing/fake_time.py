"""An event loop on which no time is spent: when nothing is ready, its clock jumps to the next timer.

A test of an hour's patience takes a millisecond, and is the same each time. What runs in threads runs at once, in the
loop's own; what waits for another process or a socket waits for real.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from pisub.testing.clock import FakeClock

T = TypeVar("T")

#: Nothing is ready and no timer runs: only another thread or process can go on. After so long, none will.
_DEADLOCK_S: Final = 10.0


class FakeTimeLoop(asyncio.SelectorEventLoop):
    """The loop. ``asyncio.sleep``, ``asyncio.timeout`` and all timers use its clock.

    Attributes:
        clock: Its time; a test may read it.
    """

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        super().__init__(_JumpingSelector(self.clock))

    def time(self) -> float:
        """Return the fake monotonic time."""
        return self.clock.monotonic()

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]  # asyncio's own hint has type variables of its own  # noqa: ARG002
        """Call the function now: a thread's time could not be jumped over."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  # it is the awaiter's, whatever it is
            future.set_exception(error)
        return future


class _JumpingSelector(selectors.BaseSelector):
    """A selector that passes the time by moving the clock."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._real = selectors.DefaultSelector()

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0)
        if ready or timeout == 0:
            return ready
        if timeout is not None:
            self._clock.advance(max(0.0, timeout))
            return []
        ready = self._real.select(_DEADLOCK_S)
        if not ready:
            raise RuntimeError("Nothing is left that could ever go on: the test waits for something that nobody does.")
        return ready

    def close(self) -> None:
        self._real.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()


def run(main: Coroutine[Any, Any, T], *, clock: FakeClock | None = None) -> T:
    """Run a test's coroutine on a ``FakeTimeLoop``, as ``asyncio.run`` does on a real one.

    Args:
        main: The test.
        clock: Its time, where the test wants to read or to begin it; a fresh one without.

    Raises:
        RuntimeError: The test waits for something that nobody will ever do.
    """
    with asyncio.Runner(loop_factory=lambda: FakeTimeLoop(clock)) as runner:
        return runner.run(main)
