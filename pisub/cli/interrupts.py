"""Ctrl-C in a command with a loop: the first asks, a second soon after leaves at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from pisub.cli.exits import Exit

#: A second Ctrl-C within this time leaves at once (decisions of the command line).
_AGAIN_WITHIN_S: Final = 2.0
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """A context manager in which Ctrl-C, SIGTERM and SIGHUP call a function instead of ending the process.

    Attributes:
        was_interrupted: Whether one came.
    """

    def __init__(self, on_first: Callable[[], None]) -> None:
        self._on_first = on_first
        self._last_at: float | None = None

    @property
    def was_interrupted(self) -> bool:
        """Whether one came."""
        return self._last_at is not None

    def __enter__(self) -> Self:
        """Take the signals over."""
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give them back."""
        for number in _SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _handle(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._last_at is not None and now - self._last_at <= _AGAIN_WITHIN_S:
            # At once means at once: an attached run holds a pidfd of this process and ends with it.
            os._exit(Exit.INTERRUPTED)
        self._last_at = now
        self._on_first()
