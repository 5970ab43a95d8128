"""What the modes of ``benchmarks.chaos`` share: a connection, a worker process, the end of a broker."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Final

from benchmarks.harness import environment_of
from pisub.client.bus import Bus
from pisub.config import Settings, caller_environment
from pisub.launch import find_broker
from pisub.process import ProcessIdentity, open_pidfd, send_signal
from pisub.protocol.session import PeerKind

_ROOT: Final = Path(__file__).resolve().parents[1]


def end_broker(settings: Settings) -> None:
    """End the broker that serves by now, and wait for it."""
    info = find_broker(settings)
    if info is not None:
        end_process(info.process, signal.SIGTERM)


def end_process(process: ProcessIdentity, number: signal.Signals) -> None:
    descriptor = open_pidfd(process)
    if descriptor is None:
        return
    try:
        send_signal(process, number)
        select.select([descriptor], [], [], 10.0)
    finally:
        os.close(descriptor)


@contextlib.asynccontextmanager
async def connected(settings: Settings) -> AsyncGenerator[Bus]:
    async with await Bus.connect(settings, kind=PeerKind.CLIENT) as bus:
        yield bus


@contextlib.contextmanager
def worker(settings: Settings, *arguments: str) -> Generator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.chaos_worker", *arguments],
        cwd=_ROOT,
        env={**caller_environment(), **environment_of(settings)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if process.stdout.readline() != b"ready\n":
                raise RuntimeError(f"the worker {arguments} did not start")
            yield process
        finally:
            process.stdin.close()
            process.wait(30)
