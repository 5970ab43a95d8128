"""Signals as bytes on a socket, so that they reach the shell's thread while the main thread is in C code.

Python runs its handlers in the main thread only; the wake-up descriptor is written by the C handler itself, in
whatever the main thread is doing.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
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
    _keep_from_forks()
    return reading, writing


def _keep_from_forks() -> None:
    """Undo it in a process that the agent forks: SIGTERM must end that one, and be no news to the runner.

    The signals are held back from before the fork until the child has its own dispositions: one that came between the
    two would be written to the runner's socket, and the child would survive it.
    """
    forking = threading.local()  # two threads may fork at once
    routed = (LOOK_SIGNAL, signal.SIGHUP, *STOP_SIGNALS)

    def hold() -> None:
        forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, routed)

    def release() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, forking.mask)

    def restore_defaults() -> None:
        signal.set_wakeup_fd(-1)
        for number in routed:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        release()

    os.register_at_fork(before=hold, after_in_parent=release, after_in_child=restore_defaults)


def _note(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the byte on the wake-up descriptor is the news."""
