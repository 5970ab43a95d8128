"""How a run is told to stop: a file, then a nudge, and in the end a signal to exactly its process.

Pure steps without a loop; the command line and the library each wait in their own way between them.
"""

from __future__ import annotations

import signal
from typing import Final

from pisub.client.views import current_view, process_of
from pisub.process import own_identity, send_signal
from pisub.record.control import request_control
from pisub.record.layout import Layout
from pisub.record.model import ControlRequest
from pisub.record.reader import RunView

#: Past its grace a runner that obeys has ended and written its record; one that has not by now never will.
FORCE_AFTER_S: Final = 5.0
#: Whoever waits for a stop gives up this long after the grace.
GIVE_UP_AFTER_S: Final = 10.0


def stop_grace_s(view: RunView) -> float:
    """Return the time that the run gives its child between TERM and KILL, in seconds."""
    return view.spec.stop_grace_ms / 1000


def request_stop(layout: Layout, run_id: str, *, source: str, reason: str, now_ms: int) -> None:
    """Write the stop file. From here on the run ends as stopped, whoever dies meanwhile."""
    request = ControlRequest(type="stop", requested_at=now_ms, by=own_identity(), source=source, reason=reason)
    request_control(layout.run(run_id), request)


def wake_by_signal(view: RunView) -> bool:
    """Make the runner read its inbox now. False where its process cannot be verified, or has not started."""
    process = process_of(view)
    return process is not None and send_signal(process, signal.SIGUSR2)


def force_end(layout: Layout, view: RunView, *, now_ms: int) -> RunView:
    """End a runner that does not obey, and finish its record as stopped.

    Only a process whose identity is verified is signalled. The returned view is not terminal yet where the kernel, or
    the nursery's own repair, needs a moment more: read again.
    """
    process = process_of(view)
    if process is not None:
        send_signal(process, signal.SIGKILL)
    return current_view(layout, view.run_id, now_ms=now_ms)
