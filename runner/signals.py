"""Signals as bytes on a socket, so that they reach the shell's thread while the main thread is in C code.

Python runs its handlers in the main thread only; the wake-up descriptor is written by the C handler itself, in
whatever the main thread is doing.
"""

from __future__ import annotations

import os
import signal
import socket
from types import FrameType

#: "Look at your files": how a sender without a broker hurries a runner.
LOOK_SIGNAL = signal.SIGUSR2
#: Ask for an orderly end, as a stop does.
STOP_SIGNALS = frozenset({int(signal.SIGTERM), int(signal.SIGINT)})


def route_signals() -> tuple[socket.socket, socket.socket]:
    """Send the numbers of arriving signals into a socket pair. Main thread only, once in a process's life.

    Returns:
        The end to read from, and the end that the C handler writes to; keep both open.
    """
    reading, writing = socket.socketpair()
    reading.setblocking(False)
    writing.setblocking(False)
    signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    # SIGHUP does nothing, for a detached run outlives its terminal; ignored, it would be ignored in its children too.
    for number in (LOOK_SIGNAL, signal.SIGHUP, *STOP_SIGNALS):
        signal.signal(number, _note)
    os.register_at_fork(after_in_child=_restore_defaults)
    return reading, writing


def _restore_defaults() -> None:
    """Undo it in a process that the agent forked: SIGTERM must end that one, and be no news to the runner."""
    signal.set_wakeup_fd(-1)
    for number in (LOOK_SIGNAL, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _note(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the byte on the wake-up descriptor is the news."""
