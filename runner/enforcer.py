"""Ending a runner that cannot end itself: an agent in C code holds the interpreter, and the shell's thread never runs.

For the nursery, or whoever else watches the runner from outside. The stop file is the warrant, and reconciliation
writes the stop: this module only sends the signal.
"""

from __future__ import annotations

import signal

from pisub.errors import RecordError
from pisub.process import ProcessIdentity, send_signal
from pisub.record.atomic import read_record
from pisub.record.control import UNREADABLE, read_all_requests
from pisub.record.layout import RunPaths
from pisub.record.results import read_result
from pisub.runs.spec import RunSpec

#: Beyond its grace, a runner that can act has ended its tree and written its end (decisions.md).
MARGIN_MS = 5_000


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
