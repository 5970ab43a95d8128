"""The nursery as a process: its socket, its identity, its log, and the loop that it ends in."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import structlog

from pisub.config import load_settings
from pisub.errors import UnsafePathError
from pisub.launchers.nursery import NurseryPaths
from pisub.paths import PRIVATE_FILE
from pisub.process import own_identity
from pisub.process_limits import raise_soft_limits

from .core import IDLE_EXIT_S, NurseryCore
from .parts import Parts
from .reaper import become_subreaper
from .server import NurseryServer

_BACKLOG: Final = 128


def serve(paths: NurseryPaths, lock: int, load: Callable[[], Parts], *, idle_exit_ms: int | None = None) -> None:
    """Be the nursery of ``paths``; returns when it may leave, in a fork of the process that was started.

    That process itself ends with exit code 0 as soon as the socket listens, so that its starter can wait for it.

    Args:
        paths: Where it serves.
        lock: Descriptor of its lock, held. Closed here.
        load: See ``app.main``.
        idle_exit_ms: Leave after this long without a runner; None is what the settings say.
    """
    settings = load_settings(runtime_dir=paths.runtime_dir, idle_exit_ms=idle_exit_ms)
    raise_soft_limits()
    parts = load()
    listener = _listen(paths.socket)
    inode = paths.socket.lstat().st_ino
    sys.stdout.flush()
    if os.fork():
        os._exit(0)
    os.setsid()
    os.ftruncate(lock, 0)
    os.pwrite(lock, msgspec.json.encode(own_identity()), 0)

    def release() -> None:
        # Only our own name: a runtime directory that was removed and made again has another nursery's socket.
        with contextlib.suppress(FileNotFoundError):
            if paths.socket.lstat().st_ino == inode:
                paths.socket.unlink()
        os.close(lock)

    log = structlog.wrap_logger(
        structlog.PrintLogger(sys.stderr),
        processors=[structlog.processors.TimeStamper(fmt="iso", utc=True), structlog.processors.JSONRenderer()],
    )
    idle_exit_s = IDLE_EXIT_S if settings.idle_exit_ms is None else settings.idle_exit_ms / 1000
    server = NurseryServer(
        listener,
        release=release,
        parts=parts,
        settings=settings,
        core=NurseryCore(time.monotonic(), idle_exit_s=idle_exit_s),
        log=log,
    )
    become_subreaper()
    log.info("nursery_started", key=paths.key, pid=os.getpid())
    # What lives now is shared with every runner for good: the collector must not touch its pages again.
    gc.collect()
    gc.freeze()
    server.serve()
    log.info("nursery_left", key=paths.key, pid=os.getpid())


def _listen(path: Path) -> socket.socket:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise UnsafePathError(f"{path} is not a socket: move it away, or choose another PISUB_RUNTIME_DIR.")
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(path))
    path.chmod(PRIVATE_FILE)
    listener.listen(_BACKLOG)
    return listener
