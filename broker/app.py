"""Puts the broker together: settings, lock, socket, core, shell; and takes it apart in order.

Owns the composition and the exit codes. Every part gets what it needs as an argument.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Generator
from pathlib import Path
from types import FrameType

import structlog
import zmq

from pisub.bodies import BODIES_DIR, sweep_bodies
from pisub.clock import SystemClock
from pisub.config import Settings
from pisub.errors import AlreadyRunningError, PisubError
from pisub.launch import EXIT_ALREADY_RUNNING, BrokerInfo, log_path
from pisub.paths import ensure_private_dir, runtime_dir
from pisub.process import own_identity, require_supported_platform
from pisub.process_limits import raise_soft_limits
from pisub.protocol.limits import IDLE_EXIT_S
from pisub.protocol.version import WIRE_VERSIONS
from pisub.version import __version__

from .core import Core
from .crash import CrashReport, write_report
from .liveness import ProcessWatch, raise_descriptor_limit
from .log import configure
from .shell import Shell
from .singleton import Singleton
from .state import Limits
from .wire import Wire


def run(settings: Settings, *, on_serving: Callable[[], None] = lambda: None) -> int:
    """Serve one runtime directory until idle, told to leave, or displaced.

    Args:
        settings: Where, and how long without a peer.
        on_serving: Called once clients can find the broker.

    Returns:
        The exit code: 0 after leaving in order, 3 when another broker serves, 1 when it could not start.
    """
    require_supported_platform()
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    directory = ensure_private_dir(runtime_dir(settings))
    log = configure(settings.log_level)
    singleton = Singleton(directory)
    sweep_bodies(directory / BODIES_DIR)
    try:
        raise_soft_limits()
        limit = raise_descriptor_limit()
        singleton.acquire()
    except AlreadyRunningError:
        log.info("broker_already_running", directory=str(directory))
        return EXIT_ALREADY_RUNNING
    except PisubError as error:
        log.error("broker_not_started", code=error.code, reason=error.message)  # noqa: TRY400  # no traceback for this
        return 1
    try:
        return _serve(settings, directory, singleton, log, on_serving, limit=limit)
    finally:
        singleton.remove_socket()
        singleton.close()


def _serve(
    settings: Settings,
    directory: Path,
    singleton: Singleton,
    log: structlog.typing.FilteringBoundLogger,
    on_serving: Callable[[], None],
    *,
    limit: int,
) -> int:
    clock = SystemClock()
    epoch = f"{time.time_ns():x}-{secrets.token_hex(8)}"
    identity = own_identity()
    software = f"pisub/{__version__}"
    idle_s = IDLE_EXIT_S if settings.idle_exit_ms is None else settings.idle_exit_ms / 1000
    core = Core(
        epoch=epoch, broker=identity, software=software, now=clock.monotonic(), limits=Limits(idle_exit_s=idle_s)
    )
    with zmq.Context() as context, contextlib.closing(ProcessWatch()) as watch:
        wire = Wire(context, singleton.socket_path)
        with contextlib.closing(wire):
            shell = Shell(core, wire, watch, singleton, clock, descriptor_limit=limit)
            with _signals(shell, watch):
                wire.bind()
                singleton.publish(
                    BrokerInfo(
                        address=f"ipc://{singleton.socket_path}",
                        process=identity,
                        epoch=epoch,
                        wire_versions=WIRE_VERSIONS,
                    )
                )
                log.info("broker_started", directory=str(directory), epoch=epoch, descriptors=limit)
                on_serving()
                try:
                    reason = shell.run()
                except Exception as error:
                    path = write_report(log_path(directory, "broker").parent, _last_words(error, core))
                    log.critical("broker_failed", epoch=epoch, report=str(path), error=type(error).__name__)
                    raise
            singleton.withdraw()
        log.info("broker_left", reason=reason, **core.state.counters)
    return 0


def _last_words(error: Exception, core: Core) -> CrashReport:
    state = core.state
    return CrashReport(
        epoch=state.epoch,
        error=f"{type(error).__name__}: {error}",
        broker=state.broker,
        started_at=state.started_at,
        limits=state.limits,
        entries=core.history.entries(),
        counters=dict(state.counters),
    )


@contextlib.contextmanager
def _signals(shell: Shell, watch: ProcessWatch) -> Generator[None]:
    """Let SIGTERM and SIGINT end the loop in order, also while it waits."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        shell.request_leave("signal")

    reader, writer = socket.socketpair()
    with reader, writer:
        reader.setblocking(False)
        writer.setblocking(False)
        watch.add_reader(reader.fileno())
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, leave)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)  # leaving already
            signal.set_wakeup_fd(-1)
