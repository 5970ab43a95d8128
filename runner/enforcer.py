"""Ending a runner that cannot end itself: an agent in C code holds the interpreter, and the shell's thread never runs.

For the nursery, or whoever else watches the runner from outside. The file of a stop or a timeout is the warrant, and
reconciliation writes that end: this module sends the signal, and asks for the timeout of a run whose work time is over.
"""

from __future__ import annotations

import contextlib
import signal

import msgspec

from pisub.clock import Clock
from pisub.errors import PisubError, RecordError
from pisub.process import ProcessIdentity, is_stopped, own_identity, send_signal
from pisub.record.atomic import read_record
from pisub.record.control import UNREADABLE, read_all_requests, request_control
from pisub.record.layout import RunPaths
from pisub.record.model import ControlRequest, RunStatus
from pisub.record.results import read_result
from pisub.record.status import read_status
from pisub.runs.spec import RunSpec

#: Beyond its grace, a runner that can act has ended its tree and written its end (decisions.md).
MARGIN_MS = 5_000
#: A runner that can act has noticed by then that its work time is over.
LATE_S = 2.0
#: What was not looked at for so long has ended.
_FORGET_S = 60.0
#: A longer gap between two looks is a suspension of this process, and maybe of the run.
_LONGEST_GAP_S = 10.0


class Enforcer:
    """Looks after runners from outside. Call it for each live runner, again and again, about every five seconds.

    Args:
        clock: Time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deadlines: dict[ProcessIdentity, Deadline] = {}

    def __call__(self, paths: RunPaths, process: ProcessIdentity) -> bool:
        """Ask for the timeout of a run whose work time is over; kill one that did not obey.

        Returns:
            Whether it was sent SIGKILL.
        """
        now_ms = self._clock.wall_ms()
        with contextlib.suppress(PisubError, OSError):  # a record that cannot be read is no warrant
            self._mind(paths, process, now_ms)
        return enforce_stop(paths, process, now_ms=now_ms)

    def _mind(self, paths: RunPaths, process: ProcessIdentity, now_ms: int) -> None:
        now = self._clock.monotonic()
        self._deadlines = {key: each for key, each in self._deadlines.items() if now - each.looked_at < _FORGET_S}
        status = read_status(paths)
        if status is None or status.timeout_ms is None or status.process != process:
            return
        deadline = self._deadlines.setdefault(process, Deadline(now))
        if deadline.look(status, now, is_stopped=is_stopped(process)):
            request = ControlRequest(
                type="timeout",
                requested_at=now_ms,
                by=own_identity(),
                source="timeout",
                reason=f"The run used up the {status.timeout_ms / 1000:g} s that it had for its work.",
            )
            request_control(paths, request)


class Deadline(msgspec.Struct):
    """The work time of one run, counted from outside since its status last said what was left of it. Pure.

    Attributes:
        looked_at: Monotonic seconds of the last look.
    """

    looked_at: float
    _said_at: int = 0
    _left_s: float = 0.0

    def look(self, status: RunStatus, now: float, *, is_stopped: bool) -> bool:
        """Tell whether the time is over, and was for ``LATE_S``.

        Args:
            status: The run's newest.
            now: Monotonic seconds, which stand still while the machine sleeps.
            is_stopped: Whether its process is suspended: that is no work.
        """
        gap = min(now - self.looked_at, _LONGEST_GAP_S)
        self.looked_at = now
        if status.remaining_ms is None or status.deadline_at is None:  # it waits for a human, or is being ended
            self._said_at = 0
            return False
        if status.last_update != self._said_at:
            self._said_at = status.last_update
            self._left_s = status.remaining_ms / 1000 + LATE_S
        elif not is_stopped:
            self._left_s -= gap
        return self._left_s <= 0


def enforce_stop(paths: RunPaths, process: ProcessIdentity, *, now_ms: int) -> bool:
    """Kill a runner whose stop, or timeout, was asked for longer ago than its grace and ``MARGIN_MS``.

    Costs two failed look-ups where nothing was asked. A run whose result is written is left alone: it is leaving.

    Args:
        paths: The run.
        process: Its runner; only exactly this process is signalled.
        now_ms: Unix time in milliseconds.

    Returns:
        Whether it was sent SIGKILL. Its parent then has its record finished, as stopped.
    """
    try:
        requests = read_all_requests(paths)
    except OSError:
        return False
    asked_at = min(
        (
            request.requested_at
            for kind, request in requests.items()
            if kind != "interrupt" and request.source != UNREADABLE  # it says not since when: no warrant to kill
        ),
        default=None,
    )
    if asked_at is None:
        return False
    try:
        spec = read_record(paths.spec, RunSpec)
        is_ending = read_result(paths) is not None
    except (RecordError, OSError):
        return False  # a record that cannot be read is no warrant to kill
    if spec is None or is_ending or now_ms < asked_at + spec.stop_grace_ms + MARGIN_MS:
        return False
    return send_signal(process, signal.SIGKILL)
