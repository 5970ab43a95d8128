"""A new interpreter for one run: a nursery of one child, without a socket.

It forks the runner in the nursery's way, so that both ways to launch give the same process; then it answers, and waits
only to write down how the runner ended.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable
from typing import IO

import msgspec

from pisub.config import load_settings
from pisub.launchers.protocol import (
    MAX_LETTER_BYTES,
    LaunchAnswer,
    decode_letter,
    encode_packet,
    request_for,
)
from pisub.process import identify
from pisub.process_limits import raise_soft_limits

from . import after_fork, reaper
from .child import fork_runner
from .core import ENFORCE_S
from .coroners import fork_coroner
from .oom import OomWatch, find_counter
from .parts import Parts
from .reaper import Runner


def run_one(source: IO[bytes], load: Callable[[], Parts]) -> int:
    """Launch the run that ``source`` describes. The answer goes to standard output, from a fork of this process.

    Args:
        source: The launch message, to the end of the stream.
        load: See ``app.main``.

    Raises:
        ProtocolError: It is not a whole launch message: the launcher died half-way. Nothing was started.
    """
    letter = source.read(MAX_LETTER_BYTES + 1)
    message = decode_letter(letter)
    settings = load_settings()
    raise_soft_limits()  # the runner gets the launcher's back; what is written down of its end is not subject to them
    parts = load()
    sys.stdout.flush()
    if os.fork():
        os._exit(0)  # the launcher has nobody to reap
    os.setsid()
    reaper.become_subreaper()
    process = fork_runner(request_for(message), letter, parts.entry)
    os.write(1, encode_packet(LaunchAnswer(process=process)))
    after_fork.silence_standard_streams()
    runner = Runner(message.run_id, message.home, message.runtime_dir, process)
    oom = OomWatch(find_counter())
    _watch(runner, parts, oom)
    adopted = tuple(filter(None, (identify(pid) for pid in reaper.children() if pid != process.pid)))
    death = msgspec.structs.replace(reaper.observe(runner), adopted=adopted)
    if death.signal == "SIGKILL" and oom.explains_a_death():
        death = msgspec.structs.replace(death, is_out_of_memory=True)
    reaper.release(fork_coroner(death, settings, parts.autopsy))
    reaper.release(process.pid)
    return 0


def _watch(runner: Runner, parts: Parts, oom: OomWatch) -> None:
    """Wait until the runner is dead; end it when it does not obey a stop."""
    descriptor = os.pidfd_open(runner.process.pid)
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        while not poller.poll(ENFORCE_S * 1000):
            oom.look()
            parts.enforce(runner)
    finally:
        os.close(descriptor)
