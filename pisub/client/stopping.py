"""How a run is told to stop: a file, then a nudge, and in the end a signal to exactly its process.

Pure steps without a loop; the command line and the library each wait in their own way between them.
"""

from __future__ import annotations

import signal
from typing import Final

from pisub.client.views import current_view, process_of
from pisub.errors import RecordError
from pisub.process import Liveness, ProcessIdentity, liveness, own_identity, send_signal
from pisub.record.control import request_control
from pisub.record.layout import Layout
from pisub.record.model import ControlRequest
from pisub.record.reader import RunView

#: Past its grace a runner that obeys has ended and written its record; one that has not by now never will.
FORCE_AFTER_S: Final = 5.0
#: Whoever waits for a stop gives up this long after the grace.
GIVE_UP_AFTER_S: Final = 10.0
#: ``code`` of the error of a stop that no file could carry.
STOP_NOT_WRITTEN: Final = "stop_not_written"


def stop_grace_s(view: RunView) -> float:
    """Return the time that the run gives its child between TERM and KILL, in seconds."""
    return view.spec.stop_grace_ms / 1000


def request_stop(layout: Layout, run_id: str, *, source: str, reason: str, now_ms: int) -> None:
    """Write the stop file. From here on the run ends as stopped, whoever dies meanwhile.

    Raises:
        OSError: It cannot be written, as on a full disk: there is ``stop_by_signal``.
    """
    request = ControlRequest(type="stop", requested_at=now_ms, by=own_identity(), source=source, reason=reason)
    request_control(layout.run(run_id), request)


def wake_by_signal(view: RunView) -> bool:
    """Make the runner read its inbox now. False where its process cannot be verified, or has not started."""
    process = process_of(view)
    return process is not None and send_signal(process, signal.SIGUSR2)


def stop_by_signal(view: RunView, refused: OSError) -> ProcessIdentity:
    """Tell the runner to stop although the stop file cannot be written: by SIGTERM to exactly its process.

    The record says ``stopped`` then as well, with the reason ``signal``, as soon as the runner can write it.

    Returns:
        The process.

    Raises:
        RecordError: There is no process that could be verified: nothing was done.
    """
    process = process_of(view)
    if process is None or not send_signal(process, signal.SIGTERM):
        raise RecordError(
            f"The request to stop run {view.run_id} cannot be written ({refused.strerror}), and no process of it could "
            "be verified, so nothing was signalled. Make room where the record lies, and repeat it.",
            code=STOP_NOT_WRITTEN,
        )
    return process


def unrecorded_end(run_id: str, process: ProcessIdentity, refused: OSError) -> RecordError:
    """Return the error that says how far a stop came of which nothing could be written."""
    if liveness(process) is Liveness.DEAD:
        how_far = f"its process (pid {process.pid}) is gone"
    else:
        how_far = f"its process (pid {process.pid}) was told to end by a signal, and stays until it can write its end"
    return RecordError(
        f"Run {run_id} is being stopped, but nothing of it can be written ({refused.strerror}): {how_far}. Make room "
        "where the record lies.",
        code=STOP_NOT_WRITTEN,
    )


def force_end(layout: Layout, view: RunView, *, now_ms: int) -> RunView:
    """End a runner that does not obey, and finish its record as stopped.

    Only a process whose identity is verified is signalled. The returned view is not terminal yet where the kernel, or
    the nursery's own repair, needs a moment more: read again.
    """
    process = process_of(view)
    if process is not None:
        send_signal(process, signal.SIGKILL)
    return current_view(layout, view.run_id, now_ms=now_ms)
