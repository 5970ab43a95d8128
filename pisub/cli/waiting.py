"""Waiting for runs without a loop and without a broker: their files, and the kernel's word that a process ended."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable, Generator, Sequence
from typing import Final

from pisub.client.awaiting import awaiting
from pisub.client.views import current_view, process_of
from pisub.clock import SystemClock
from pisub.process import open_pidfd
from pisub.record.layout import Layout
from pisub.record.reader import RunView

#: Files are read again this often. The end of a process is noticed at once.
POLL_S: Final = 0.2
#: After an end was seen, whoever writes the record of it needs a moment: look again soon.
_SOON_S: Final = 0.02


def wait_for_end(
    layout: Layout,
    run_ids: Sequence[str],
    *,
    is_any: bool = False,
    timeout_s: float | None = None,
    is_enough: Callable[[Sequence[RunView]], bool] = lambda _: False,
) -> list[RunView]:
    """Wait until all runs (or one of them) have ended and their results lie there.

    ``is_enough`` sees every look and may end the wait.

    Returns the views in the order of ``run_ids``, when it is so or when the time has passed: the caller looks.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    with awaiting(layout, run_ids):
        while True:
            views = [current_view(layout, run_id, now_ms=SystemClock().wall_ms()) for run_id in run_ids]
            ended = [has_ended(view) for view in views]
            if all(ended) or (is_any and any(ended)) or is_enough(views):
                return views
            left = POLL_S if deadline is None else min(POLL_S, deadline - time.monotonic())
            if left <= 0:
                return views
            pause([view for view in views if not has_ended(view)], left)


def has_ended(view: RunView) -> bool:
    """Tell whether a run has ended and says how."""
    return view.state.is_terminal and view.result is not None


def pause(views: Sequence[RunView], timeout_s: float) -> None:
    """Return when one of the runs' processes has ended, or the time has passed."""
    with _pidfds(views) as (poller, is_one_gone):
        poller.poll(int(1000 * (min(_SOON_S, timeout_s) if is_one_gone else timeout_s)) or 1)


@contextlib.contextmanager
def _pidfds(views: Sequence[RunView]) -> Generator[tuple[select.poll, bool]]:
    poller = select.poll()
    opened: list[int] = []
    is_one_gone = False
    try:
        for view in views:
            process = process_of(view)
            if process is None:
                continue
            try:
                descriptor = open_pidfd(process)
            except OSError:
                continue  # no pidfd here: the timer is enough
            if descriptor is None:
                is_one_gone = True
            else:
                opened.append(descriptor)
                poller.register(descriptor, select.POLLIN)
        yield poller, is_one_gone
    finally:
        for descriptor in opened:
            os.close(descriptor)
