"""From a copy of the nursery to a process like one that the caller had started: every inherited thing is replaced.

The order is part of the design: nothing of the caller's is visible before the descriptors of the nursery are closed.
Used after a fork and by a plain new interpreter alike. Knows nothing of runs.
"""

from __future__ import annotations

import contextlib
import locale
import os
import random
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path

from pisub.paths import PRIVATE_FILE
from pisub.process_limits import take_soft_limits
from pisub.runs.spec import LaunchMessage


def reset_signals() -> None:
    """Give every signal the disposition of a fresh interpreter, drop the wake-up descriptor, empty the mask.

    SIGCHLD above all: ignored, it would make every child's exit status read as 0.
    """
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if number in (signal.SIGKILL, signal.SIGSTOP):
            continue
        with contextlib.suppress(OSError):  # the two that the C library keeps for itself
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def close_descriptors() -> None:
    """Close everything but 0, 1 and 2."""
    os.closerange(3, _descriptor_end())


def redirect_standard_streams(out: Path, errors: Path) -> None:
    """Make standard input empty, and append standard output and standard error to files of the run's (0600)."""
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    for target, path in ((1, out), (2, errors)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_FILE)
        os.fchmod(file, PRIVATE_FILE)
        os.dup2(file, target)
        if file > 2:
            os.close(file)
    if empty > 2:
        os.close(empty)


def silence_standard_streams() -> None:
    """Point 0, 1 and 2 at nothing: whoever started us must not wait for our pipes to close."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for target in (0, 1, 2):
        os.dup2(nothing, target)
    if nothing > 2:
        os.close(nothing)


def replace_environment(environ: dict[str, str]) -> None:
    """Make ``environ`` the whole environment, and let the C library and the locale read it again."""
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    tempfile.tempdir = None
    with contextlib.suppress(locale.Error):  # a locale that is not installed: the C one stays, as in a new interpreter
        locale.setlocale(locale.LC_CTYPE, "")


def take_caller_s_limits(message: LaunchMessage) -> None:
    """Set umask, soft limits, descriptor limit and working directory.

    Raises:
        OSError: The directory is gone.
    """
    os.umask(message.umask)
    take_soft_limits(message.soft_limits)
    if message.nofile is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        ceiling = message.nofile[1] if hard == resource.RLIM_INFINITY else min(message.nofile[1], hard)
        if message.nofile[1] == resource.RLIM_INFINITY:
            ceiling = hard
        soft = ceiling if message.nofile[0] == resource.RLIM_INFINITY else message.nofile[0]
        if ceiling != resource.RLIM_INFINITY:
            soft = min(soft, ceiling)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, ceiling))
    os.chdir(message.cwd)


def reseed() -> None:
    """Make the random sources differ from those of every other fork of the same image."""
    random.seed()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def _descriptor_end() -> int:
    try:
        return max(int(name) for name in os.listdir("/proc/self/fd")) + 1  # noqa: PTH208  # names only, no stat
    except OSError:
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
