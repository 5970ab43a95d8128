"""Ctrl-C in a command with a loop: the first asks, a second soon after leaves at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import termios
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from pisub.cli.exits import Exit

#: A second Ctrl-C within this time leaves at once (decisions of the command line).
_AGAIN_WITHIN_S: Final = 2.0
#: To the line's beginning, clear from there, show the cursor.
_CLEAR_DRAWN: Final = b"\r\x1b[J\x1b[?25h"
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Terminal:
    """A terminal's modes as they were, for leaving from the middle of a dialog, which has set others."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._modes = termios.tcgetattr(descriptor)

    @classmethod
    def of_process(cls) -> Self | None:
        """Return the terminal among the standard streams, or None."""
        return next((cls(descriptor) for descriptor in range(3) if os.isatty(descriptor)), None)

    def restore(self) -> None:
        """Set the modes again, and clear what was drawn, where they are others now."""
        with contextlib.suppress(termios.error, OSError):
            if termios.tcgetattr(self._descriptor) != self._modes:
                termios.tcsetattr(self._descriptor, termios.TCSANOW, self._modes)
                os.write(self._descriptor, _CLEAR_DRAWN)


class Interrupts:
    """A context manager in which Ctrl-C, SIGTERM and SIGHUP call a function instead of ending the process.

    Attributes:
        was_interrupted: Whether one came.
        is_hung_up: Whether one was SIGHUP.
    """

    def __init__(self, on_first: Callable[[], None]) -> None:
        self._on_first = on_first
        self._last_at: float | None = None
        self._is_hung_up = False
        self._terminal = _Terminal.of_process()

    @property
    def was_interrupted(self) -> bool:
        """Whether one came."""
        return self._last_at is not None

    @property
    def is_hung_up(self) -> bool:
        """Whether one was SIGHUP: the terminal was closed."""
        return self._is_hung_up

    def __enter__(self) -> Self:
        """Take the signals over."""
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._handle, number)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give them back."""
        for number in _SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _handle(self, number: signal.Signals) -> None:
        self._is_hung_up = self._is_hung_up or number == signal.SIGHUP
        now = asyncio.get_running_loop().time()
        if self._last_at is not None and now - self._last_at <= _AGAIN_WITHIN_S:
            # At once means at once: an attached run holds a pidfd of this process and ends with it.
            if self._terminal is not None:
                self._terminal.restore()
            os._exit(Exit.HANG_UP if self._is_hung_up else Exit.INTERRUPTED)
        self._last_at = now
        self._on_first()
