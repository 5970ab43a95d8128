"""Threads of which one runs at a time, and which stop before each look at, and each change of, the disk.

``Interleaving`` runs actors in an order that is chosen from outside, step by step, and can end one in the middle, as a
SIGKILL would.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from pisub.record import sessions
from pisub.record.disk import Disk

_HANG_S = 30.0


class KilledError(BaseException):
    """The actor is gone: nothing of it runs any more."""


class Actor:
    """One thread of the interleaving."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self.name = name
        self.is_over = False
        self.error: BaseException | None = None
        self._work = work
        self._is_killed = False
        self._may_run = threading.Semaphore(0)
        self._has_stopped = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def step(self) -> None:
        """Let it run to before its next look at the disk, or to its end."""
        self._may_run.release()
        assert self._has_stopped.acquire(timeout=_HANG_S), f"{self.name} hangs"
        if self.is_over:
            self._thread.join()

    def kill(self) -> None:
        """End it where it stands."""
        self._is_killed = True
        while not self.is_over:
            self.step()

    def pause(self) -> None:
        """Called in the thread, before each look."""
        if self._is_killed:
            raise KilledError
        self._has_stopped.release()
        self._may_run.acquire()
        if self._is_killed:
            raise KilledError

    def _run(self) -> None:
        self._may_run.acquire()
        try:
            self._work()
        except KilledError:
            pass
        except BaseException as error:  # noqa: BLE001  # carried to the test
            self.error = error
        self.is_over = True
        self._has_stopped.release()


class Interleaving:
    """Actors, and the one that runs."""

    def __init__(self) -> None:
        self.actors: list[Actor] = []

    def add(self, name: str, work: Callable[[], None]) -> None:
        self.actors.append(Actor(name, work))

    @property
    def living(self) -> list[Actor]:
        return [actor for actor in self.actors if not actor.is_over]

    def pause(self) -> None:
        for actor in self.actors:
            if actor._thread is threading.current_thread():
                actor.pause()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Have every look and every change of the ledger be a step."""

        def stepping(function: Callable[..., Any]) -> Callable[..., Any]:
            def stepped(*args: Any, **kwargs: Any) -> Any:
                self.pause()
                return function(*args, **kwargs)

            return stepped

        looks = {name: stepping(getattr(sessions, name)) for name in ("exists", "list_names", "read_survivor")}
        with patch.multiple(sessions, **looks), Disk.observed_by(lambda _operation, _name: self.pause()):
            try:
                yield
            finally:
                for actor in self.living:
                    actor.kill()
