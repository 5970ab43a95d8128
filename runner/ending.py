"""How a run's end gets into the record and on the bus: the same way for every end."""

from __future__ import annotations

import asyncio
import contextlib

from structlog.typing import FilteringBoundLogger

from pisub.errors import RecordError
from pisub.protocol.delivery import Priority
from pisub.protocol.runs import ASYNC_COMPLETE_TOPIC, AsyncComplete
from pisub.record.atomic import exists
from pisub.record.commit import commit_end
from pisub.record.journal import Journal
from pisub.record.layout import Layout
from pisub.record.lock import RunLock
from pisub.record.model import RunResult, RunStatus

from .effects import Verdict
from .link import Link
from .machine import Snapshot
from .recorder import Recorder

#: A disk that is full or refuses is tried again this often; after ``GIVE_UP_S`` it is left to reconciliation.
RETRY_S = 0.25
GIVE_UP_S = 600.0


class Ending:
    """Writes one run's end.

    Args:
        layout: The record.
        lock: The run's lock, held until ``release``.
        recorder: Knows the last status and the result.
        journal: The open journal; closed by ``release``.
        log: The runner's own log.
    """

    def __init__(
        self, layout: Layout, lock: RunLock, recorder: Recorder, journal: Journal, log: FilteringBoundLogger
    ) -> None:
        self._layout = layout
        self._lock = lock
        self._recorder = recorder
        self._journal = journal
        self._log = log
        self._end: tuple[RunStatus, RunResult] | None = None
        self._result: RunResult | None = None

    async def write(self, verdict: Verdict, snapshot: Snapshot) -> None:
        """Commit, again and again while the disk refuses; not where the run's directory was removed.

        Raises:
            TimeoutError: It refused for ten minutes.
        """
        async with asyncio.timeout(GIVE_UP_S):
            while not self.try_to_write(verdict, snapshot):  # no event says that a disk is well again
                with contextlib.suppress(OSError):  # not to be told now is not "no"
                    if not exists(self._lock.path.parent):
                        self._log.error("record_removed")
                        return  # with the run's directory the run is gone: nobody asks how it ended
                await asyncio.sleep(RETRY_S)

    def try_to_write(self, verdict: Verdict, snapshot: Snapshot) -> bool:
        """Commit once. False when the disk refuses; nothing is half done then."""
        try:
            # Once: a reader may have seen the pending result of a commit that the disk then refused to go on with.
            self._end = self._end or self._recorder.end(verdict, snapshot)
            status, result = self._end
            data = {
                "status": result.state.value,
                "exitCode": result.exit_code,
                "durationMs": result.duration_ms,
                "reason": result.reason,
            }
            line = "subagent.run.completed", {key: value for key, value in data.items() if value is not None}
            self._result = commit_end(self._layout, self._lock, status, result, journal=self._journal, lines=[line])
        except (OSError, RecordError) as error:  # a directory that cannot be opened is reported as unsafe
            self._log.warning("end_not_written", error=str(error))
            return False
        self._log.info("run_ended", state=self._result.state.value, reason=self._result.reason)
        return True

    def announce(self, link: Link) -> None:
        """Publish the end. The outbox's file is the delivery; this wakes its reader."""
        if self._result is None:
            return
        result = self._result
        message = AsyncComplete(
            run_id=result.run_id,
            session_id=result.session_id,
            agent=result.agent,
            state=result.state,
            summary=result.summary,
            run_dir=str(self._layout.run(result.run_id).dir),
            ended_at=result.ended_at,
        )
        link.publish(ASYNC_COMPLETE_TOPIC, message, priority=Priority.TERMINAL)

    def release(self) -> None:
        """Close the journal and give the lock up. Nothing is written after it."""
        self._journal.close()
        self._lock.release()
