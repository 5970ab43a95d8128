"""The broker's log: JSON lines on standard error, which its starter sends to a file in ``logs/``.

Lifecycle only: nothing is logged per message or per peer, so nobody can flood it.
"""

from __future__ import annotations

import logging
import sys

import structlog


def configure(level: str) -> structlog.typing.FilteringBoundLogger:
    """Set up structlog for this program and return its logger."""
    number = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.dict_tracebacks,
            structlog.processors.JSONRenderer(sort_keys=True),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger("broker")
    return logger
