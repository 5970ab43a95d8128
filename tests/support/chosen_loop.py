"""An event loop whose work in threads is done when, and only if, a test says so: one model of several processes.

Each piece of work that a task hands to a thread waits as a job, under the name of its process. The test carries a job
out, has it fail, or ends its process before it, or right after it, with its answer lost. What a process that has ended
still does in memory reaches no disk: its jobs are not carried out any more. Time passes only in ``pass_time``.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any, TypeVar

from pisub.testing import FakeClock
from pisub.testing.fake_time import FakeTimeLoop

T = TypeVar("T")

#: Turns of the loop after which everything that can go on without a job or a timer has gone on.
_TURNS = 24


class Process:
    """Somebody who can be killed. What is called, or becomes a task, in ``run`` belongs to it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self._context = contextvars.copy_context()
        self._context.run(_OWNER.set, self)

    def run(self, function: Callable[..., T], *args: Any) -> T:
        return self._context.run(function, *args)


_OWNER: contextvars.ContextVar[Process | None] = contextvars.ContextVar("owner", default=None)


class Job:
    """Work that waits to be carried out."""

    def __init__(self, owner: Process, future: asyncio.Future[Any], work: Callable[[], Any]) -> None:
        self.owner = owner
        self._future = future
        self._work = work

    def carry_out(self, *, is_answer_lost: bool = False) -> None:
        """Do it. With a lost answer whoever waits for it never hears of it."""
        try:
            result = self._work()
        except Exception as error:  # noqa: BLE001  # it is the awaiter's, whatever it is
            if not is_answer_lost and not self._future.done():
                self._future.set_exception(error)
        else:
            if not is_answer_lost and not self._future.done():
                self._future.set_result(result)

    def fail(self, error: OSError) -> None:
        """Have it fail before it did anything."""
        if not self._future.done():
            self._future.set_exception(error)


class ChosenLoop(FakeTimeLoop):
    """The loop.

    Attributes:
        jobs: Those of living processes that wait, in the order of their coming.
    """

    def __init__(self, clock: FakeClock | None = None) -> None:
        super().__init__(clock)
        self.jobs: list[Job] = []

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]  # as in FakeTimeLoop
        owner = _OWNER.get()
        if owner is None:
            return super().run_in_executor(executor, func, *args)
        future: asyncio.Future[T] = self.create_future()
        if not owner.is_dead:
            self.jobs.append(Job(owner, future, lambda: func(*args)))
        return future

    def kill(self, process: Process) -> None:
        """End a process: nothing of it reaches the disk any more."""
        process.is_dead = True
        self.jobs = [job for job in self.jobs if job.owner is not process]

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, for everybody; it takes none."""
        over = asyncio.Event()
        self.call_later(seconds, over.set)
        await over.wait()

    @staticmethod
    async def quiet() -> None:
        """Return when everything has gone on that can, without a job and without time."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)
