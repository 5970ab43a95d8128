"""The log of a run's process: JSON lines on standard error, which its launcher sends to ``runner.stderr.log``.

That file lies on the disk of the record, which may be full, and standard error is also the agent's, who may close it.
A log that cannot be written is lost, and nothing else.
"""

from __future__ import annotations

import contextlib
import logging
import os

import structlog
from structlog.typing import FilteringBoundLogger

_STANDARD_ERROR = 2


class _Lines:
    """Writes lines to a descriptor of its own, past ``sys.stderr``. Never raises for what the file refuses."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        with contextlib.suppress(OSError):  # closed before we came
            self._descriptor = os.dup(_STANDARD_ERROR)

    def msg(self, line: str) -> None:
        """Write one line, or lose it."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.write(self._descriptor, line.encode("utf-8", "replace") + b"\n")

    debug = info = warning = error = critical = msg


def make_log(level: str) -> FilteringBoundLogger:
    """Make the log of this process. Called after the fork, known to nobody else."""
    log: FilteringBoundLogger = structlog.wrap_logger(
        _Lines(),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping().get(level.upper(), 20)),
    )
    return log
