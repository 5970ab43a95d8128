"""Several runs at once: submitted together or not at all, started in turn, so many at a time.

All of a batch are runs from the first moment, queued until their turn comes. Who waits is in order of submission; a run
that is asked to end before its turn is started out of turn, so that its own runner says that it ended. The program is
not held up: runs are started beside what it does.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from pisub import arguments
from pisub.client.runs import Run
from pisub.client.spawn import SpawnRequest, Submission, launch_submitted, record_launch_error
from pisub.config import Settings
from pisub.errors import InvalidArgumentError, LaunchError, PisubError
from pisub.launchers.local import LocalLauncher
from pisub.record.atomic import exists
from pisub.record.control import CONTROL_KINDS
from pisub.record.layout import Layout
from pisub.runs.spec import OnNoHost

#: A run that waits for its turn is looked at this often: whether it is to end before.
_LOOK_S: Final = 0.5


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a batch. Fields as of ``Client.spawn``."""

    agent: str
    task: str
    cwd: Path | str | None = None
    run_id: str | None = None
    label: str = ""
    timeout_ms: int | None = None


def requests_of(
    tasks: Sequence[Task], *, session_id: str, settings: Settings, on_no_host: OnNoHost, attached: bool
) -> list[SpawnRequest]:
    """Return a batch as requests.

    Raises:
        InvalidArgumentError: It is empty, longer than ``parallel_max_tasks``, or two of it are one run.
    """
    batch = list(tasks)
    for each in batch:
        arguments.instance(each, Task, "tasks")
    if not 1 <= len(batch) <= settings.parallel_max_tasks:
        raise InvalidArgumentError(
            f"A batch has 1 to {settings.parallel_max_tasks} tasks (parallel_max_tasks), not {len(batch)}.",
            field="tasks",
        )
    named = [each.run_id for each in batch if each.run_id is not None]
    if len(set(named)) != len(named):
        raise InvalidArgumentError("Two tasks of the batch have one run_id: give each its own.", field="tasks")
    return [
        SpawnRequest(
            agent=each.agent,
            task=each.task,
            session_id=session_id,
            cwd=None if each.cwd is None else arguments.path(each.cwd, "cwd"),
            run_id=each.run_id,
            label=each.label,
            timeout_ms=each.timeout_ms,
            on_no_host=on_no_host,
            attached=attached,
        )
        for each in batch
    ]


class Fanout:
    """Starts the runs of one client's batches.

    Args:
        settings: How many at once in all (``global_concurrency_limit``).
        layout: The record.
        launcher: What starts a runner.
    """

    def __init__(self, settings: Settings, layout: Layout, launcher: LocalLauncher) -> None:
        self._layout = layout
        self._launcher = launcher
        self._all = asyncio.Semaphore(settings.global_concurrency_limit)
        self._starters: set[asyncio.Task[None]] = set()

    def begin(self, batch: Sequence[tuple[Submission, Run]], *, concurrency: int) -> None:
        """Start a batch in turn, from now on. Those that need no launch are left alone."""
        loop = asyncio.get_running_loop()
        turns = asyncio.Semaphore(concurrency)
        for submission, run in batch:
            if submission.needs_launch:
                starter = loop.create_task(self._start(submission, run, turns), name=f"pisub-start-{run.id}")
                self._starters.add(starter)
                starter.add_done_callback(self._starters.discard)

    async def close(self) -> None:
        """Start nothing more. What waits for its turn ends, as never started; what goes on is left to itself."""
        starters = list(self._starters)
        for each in starters:
            each.cancel()
        if starters:
            await asyncio.wait(starters)

    async def _start(self, submission: Submission, run: Run, turns: asyncio.Semaphore) -> None:
        try:
            is_in_turn = await self._wait_for_turn(run.id, turns)
        except asyncio.CancelledError:
            gone = LaunchError("whoever started its batch left before its turn came.")
            with contextlib.suppress(PisubError, OSError):  # its submitter is gone soon: whoever reads it ends it
                await asyncio.to_thread(record_launch_error, self._layout, run.id, gone)
            raise
        try:
            if await self._launch(submission):
                await run.result()
        finally:
            if is_in_turn:
                self._all.release()
                turns.release()

    async def _launch(self, submission: Submission) -> bool:
        """Start one runner; False where it could not be started, which the run's record says."""
        given_up = threading.Event()
        launching = asyncio.ensure_future(
            asyncio.to_thread(launch_submitted, self._layout, submission, self._launcher, given_up.is_set)
        )
        try:
            await asyncio.shield(launching)
        except asyncio.CancelledError:
            given_up.set()
            await asyncio.wait([launching])
            raise
        except (PisubError, OSError):
            return False
        return True

    async def _wait_for_turn(self, run_id: str, turns: asyncio.Semaphore) -> bool:
        """Return True with both turns taken, or False without where the run is asked to end already."""
        taking = asyncio.ensure_future(self._take(turns))
        try:
            while not taking.done():
                await asyncio.wait([taking], timeout=_LOOK_S)
                if not taking.done() and await asyncio.to_thread(self._is_to_end, run_id):
                    break
        finally:
            taking.cancel()
            await asyncio.wait([taking])
        return not taking.cancelled()

    async def _take(self, turns: asyncio.Semaphore) -> None:
        await turns.acquire()
        try:
            await self._all.acquire()
        except asyncio.CancelledError:
            turns.release()
            raise

    def _is_to_end(self, run_id: str) -> bool:
        paths = self._layout.run(run_id)
        with contextlib.suppress(PisubError, OSError):  # not to be told now: it is looked at again
            return any(exists(paths.request(kind)) for kind in CONTROL_KINDS)
        return False
