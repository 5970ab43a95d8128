"""One fork, one runner: the parent learns the child's identity, the child becomes the run and never returns."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Final, NoReturn, Protocol

from pisub.config import Settings, load_settings
from pisub.errors import ProtocolError
from pisub.launchers.protocol import MAX_LETTER_BYTES, LaunchRequest, decode_letter
from pisub.process import ProcessIdentity, boot_id, machine_id, pid_namespace, read_stat
from pisub.record.layout import Layout
from pisub.runs.spec import LaunchMessage

from . import after_fork
from .title import set_title

#: The run's entry raised: a bug of ours (sysexits' EX_SOFTWARE).
EXIT_RAISED: Final = 70
#: The process could not be made what the caller asked for (EX_OSERR); the run's runner.stderr.log says why.
EXIT_SETUP: Final = 71


class Entry(Protocol):
    """What a runner does: ``runner.app.run``."""

    def __call__(self, message: LaunchMessage, *, settings: Settings) -> int:
        """Carry out the run; return the exit code."""
        ...


def fork_runner(request: LaunchRequest, letter: int | bytes, entry: Entry) -> ProcessIdentity:
    """Fork a runner.

    Args:
        request: Which run.
        letter: The launch message, or the descriptor of the memory file with it, which stays the caller's to close.
        entry: What the child does.

    Raises:
        OSError: There is no process or memory to be had. Nothing was started.
    """
    pid = fork_quietly()
    if pid == 0:
        _become_runner(request, letter, entry)
    return identify_child(pid)


def fork_quietly() -> int:
    """Fork with all signals held back, so that none reaches a handler of the parent's in the child.

    The child's mask stays full until ``after_fork.reset_signals``.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    pid = -1
    try:
        pid = os.fork()
    finally:
        if pid != 0:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def identify_child(pid: int) -> ProcessIdentity:
    """Return the identity of a child that was not reaped yet, whether it still runs or not."""
    stat = read_stat(pid)
    return ProcessIdentity(
        pid=pid,
        start_ticks=0 if stat is None else stat.start_ticks,
        boot_id=boot_id(),
        machine_id=machine_id(),
        pid_namespace=pid_namespace(),
    )


def _become_runner(request: LaunchRequest, letter: int | bytes, entry: Entry) -> NoReturn:
    code = EXIT_SETUP
    try:
        message, settings = _prepare(request, letter)
        code = EXIT_RAISED
        code = entry(message, settings=settings)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:  # noqa: BLE001  # the end of this process: beyond it lies the parent's own loop
        traceback.print_exc()
    finally:
        _flush()
        os._exit(code & 0xFF)


def _prepare(request: LaunchRequest, letter: int | bytes) -> tuple[LaunchMessage, Settings]:
    os.setsid()
    after_fork.reset_signals()
    data = letter if isinstance(letter, bytes) else os.pread(letter, MAX_LETTER_BYTES + 1, 0)
    run = Layout(root=Path(os.fsdecode(request.home))).run(request.run_id)
    after_fork.redirect_standard_streams(run.stdout_log, run.stderr_log)
    after_fork.close_descriptors()
    message = decode_letter(data)
    if (message.run_id, os.fsencode(message.home)) != (request.run_id, request.home):
        raise ProtocolError("The launch message is not that of the run it came with.")
    after_fork.replace_environment(message.environ)
    after_fork.take_caller_s_limits(message)
    after_fork.reseed()
    set_title(f"pisub: run {message.run_id}")
    return message, load_settings(home=message.home, runtime_dir=message.runtime_dir)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # a full disk, or the agent closed it: there is nobody left to tell
            continue
