"""What a test may not leave behind: processes that it started, descriptors that it opened.

Every process that descends from a test carries a mark in its environment, because pisub hands ``PISUB_*`` on to all
that it starts. So what is left is found by what it is, never by its name.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from pisub.process import ProcessIdentity, identify, open_pidfd, send_signal
from tests.support.eventually import wait_for_descriptor

MARK = "PISUB_TEST_MARK"


def marked_processes(mark: str) -> dict[int, tuple[ProcessIdentity, str]]:
    """Find live processes (zombies are not) whose environment carries the mark, with their command lines."""
    wanted = f"{MARK}={mark}".encode()
    found: dict[int, tuple[ProcessIdentity, str]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                identity = identify(int(entry.name))
                if identity is not None:
                    found[identity.pid] = (identity, command)
    return found


def end(identities: list[ProcessIdentity], number: signal.Signals, *, within_s: float) -> None:
    """Signal exactly these processes and wait for each to go; what survives is killed."""
    for identity in identities:
        descriptor = open_pidfd(identity)
        if descriptor is None:
            continue
        try:
            send_signal(identity, number)
            if not wait_for_descriptor(descriptor, within_s):
                send_signal(identity, signal.SIGKILL)
                wait_for_descriptor(descriptor, within_s)
        finally:
            os.close(descriptor)


def is_daemon(command: str) -> bool:
    """Whether a command line is one of the two that stay a while after their last user: broker and nursery."""
    return "broker" in command.split() or "pisub.broker" in command.split() or "nursery" in command


def open_descriptors() -> dict[int, str]:
    """Return this process's open descriptors and what each is."""
    found: dict[int, str] = {}
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found[int(entry.name)] = str(entry.readlink())
    return {number: target for number, target in found.items() if not target.endswith("/fd")}
