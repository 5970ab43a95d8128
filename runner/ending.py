"""How a run's end gets into the record and on the bus: the same way for every end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import traceback
from typing import NoReturn

from structlog.typing import FilteringBoundLogger

from pisub.errors import PisubError, RecordError
from pisub.process_limits import hard_limit_of_descriptors
from pisub.protocol.delivery import Priority
from pisub.protocol.runs import ASYNC_COMPLETE_TOPIC, AsyncComplete
from pisub.record.atomic import exists
from pisub.record.commit import commit_end
from pisub.record.ends import EXIT_UNWRITTEN
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
#: An agent that could not be made to return goes on in this process: it is not let go on for as long as that.
GIVE_UP_HUNG_S = 5.0
#: Nothing that anybody does outside makes these pass: a limit of this process, a file that is not open any more.
_FOR_GOOD = frozenset({errno.EFBIG, errno.EBADF})
_NO_DESCRIPTORS = frozenset({errno.EMFILE})


#: A bug in the shell's thread ends the process with this status (sysexits' EX_SOFTWARE); the coroner says the rest.
EXIT_BUG = 70


class EndNotWrittenError(PisubError):
    """This process cannot write how its run ended, and never will: it must leave, so that somebody else can."""

    code = "end_not_written"


def leave_without_end(error: BaseException) -> NoReturn:
    """End this process, with a status that says why its run has no end on record."""
    # Whose descriptors were closed under it could write no more than an end that is refused.
    is_refused = isinstance(error, EndNotWrittenError) or (isinstance(error, OSError) and error.errno == errno.EBADF)
    try:
        if not isinstance(error, EndNotWrittenError):
            traceback.print_exception(error)
    finally:  # the disk may be full, and the agent may have closed the stream
        os._exit(EXIT_UNWRITTEN if is_refused else EXIT_BUG)


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
        self._descriptors = hard_limit_of_descriptors()
        self._end: tuple[RunStatus, RunResult] | None = None
        self._result: RunResult | None = None

    async def write(self, verdict: Verdict, snapshot: Snapshot) -> None:
        """Commit, again and again while the disk refuses; not where the run's directory was removed.

        Raises:
            EndNotWrittenError: It refuses for good, or did for ten minutes.
        """
        try:
            async with asyncio.timeout(GIVE_UP_HUNG_S if verdict.is_engine_hung else GIVE_UP_S):
                while not self.try_to_write(verdict, snapshot):  # no event says that a disk is well again
                    with contextlib.suppress(OSError):  # not to be told now is not "no"
                        if not exists(self._lock.path.parent):
                            self._log.error("record_removed")
                            return  # with the run's directory the run is gone: nobody asks how it ended
                    await asyncio.sleep(RETRY_S)
        except TimeoutError:
            raise EndNotWrittenError("The disk refused for too long.") from None

    def try_to_write(self, verdict: Verdict, snapshot: Snapshot) -> bool:
        """Commit once. False when the disk refuses; nothing is half done then.

        Raises:
            EndNotWrittenError: It refuses for good.
        """
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
            if self._is_for_good(error):
                raise EndNotWrittenError(str(error)) from error
            return False
        self._log.info("run_ended", state=self._result.state.value, reason=self._result.reason)
        return True

    def _is_for_good(self, error: OSError | RecordError) -> bool:
        """Tell whether to try again is in vain: the agent is done, so nobody takes back what it did to this process."""
        cause = error if isinstance(error, OSError) else error.__cause__
        number = cause.errno if isinstance(cause, OSError) else None
        is_lowered = hard_limit_of_descriptors() < self._descriptors
        return number in _FOR_GOOD or (number in _NO_DESCRIPTORS and is_lowered)

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
