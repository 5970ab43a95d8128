"""Starting pisub's own programs, and finding the broker. The one place that knows how.

Owns how a program is named, where its output goes, and what ``broker.json`` says. It imports neither program. It must
not know the bus: whoever wants to talk to the broker uses a ``Bus``.
"""

from __future__ import annotations

import os
import site
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final, Literal

import msgspec

from pisub.config import Settings, daemon_environment
from pisub.errors import BrokerUnavailableError
from pisub.paths import PRIVATE_FILE, ensure_private_dir, runtime_dir
from pisub.process import Liveness, ProcessIdentity, is_stopped, liveness
from pisub.protocol.base import Record
from pisub.record.tails import read_tail
from pisub.small_files import read_small
from pisub.start_lock import StartLock

BROKER_LOCK: Final = "broker.lock"
BROKER_SOCKET: Final = "broker.sock"
BROKER_FILE: Final = "broker.json"
#: ``code`` of the error of a broker that is there and does not answer.
BROKER_SILENT: Final = "broker_silent"
#: Exit code of a program that found another one of its kind at work.
EXIT_ALREADY_RUNNING: Final = 3
#: A log that is longer than this when a program starts is set aside, once.
_MAX_LOG_BYTES: Final = 1024 * 1024
#: What of a log an error quotes.
_TAIL_CHARS: Final = 2_000
#: How long to wait between two looks for a broker that somebody else is starting, or that is leaving.
_LOOK_AGAIN_S: Final = 0.02
#: How often who waits for a start looks whether it is still wanted.
_LOOK_UP_S: Final = 0.1
_MAX_INFO_BYTES: Final = 64 * 1024


class Program(msgspec.Struct, frozen=True):
    """How one of our programs is started: the beginning of its argv, and what its environment needs besides."""

    argv: tuple[str, ...]
    environ: dict[str, str] = {}


class BrokerInfo(Record, frozen=True, kw_only=True):
    """Where the broker is: the content of ``broker.json``."""

    address: str
    process: ProcessIdentity
    epoch: str
    wire_versions: tuple[int, ...]


class _LogLine(msgspec.Struct):
    reason: str = ""


def program(name: Literal["broker", "runner"]) -> Program:
    """Return how to start a program of ours: surely ours, whatever lies in the working directory or on PYTHONPATH.

    A fresh interpreter is told to ignore both (``-E -P``). Where it would then not find our module (an uninstalled
    tree), or another project's of that name, the folder beside ``pisub`` is its only PYTHONPATH.
    """
    package = Path(__file__).resolve().parent
    in_wheel = package / name / "__main__.py"
    module = f"{__package__}.{name}" if in_wheel.exists() else name
    top, parent = module.partition(".")[0], package.parent
    spec = PathFinder.find_spec(top, _interpreter_path())
    places = [] if spec is None else [Path(each).resolve() for each in spec.submodule_search_locations or ()]
    if places == [parent / top]:
        return Program((sys.executable, "-E", "-P", "-m", module))
    return Program((sys.executable, "-P", "-m", module), {"PYTHONPATH": str(parent)})


def _interpreter_path() -> list[str]:
    """Return where a fresh interpreter with ``-E -P`` looks for packages: site directories and their ``.pth`` lines."""
    directories = site.getsitepackages()
    if site.ENABLE_USER_SITE:
        directories.append(site.getusersitepackages())
    found: list[str] = []
    for directory in directories:
        found.append(directory)
        for path in sorted(Path(directory).glob("*.pth")):
            try:
                lines = path.read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError):
                continue
            found.extend(str(Path(directory, line)) for line in lines if line and not line.startswith(("#", "import")))
    return found


def start_daemon(start: Program, arguments: list[str], *, runtime_dir: Path, log_name: str) -> subprocess.Popen[bytes]:
    """Start a program that outlives us: a session of its own, nothing inherited but a reduced environment.

    Standard output and error are appended to ``logs/<log_name>.log``; the working directory is the runtime directory.

    Raises:
        OSError: It could not be started.
        UnsafePathError: The runtime directory cannot be used.
    """
    ensure_private_dir(runtime_dir)
    path = log_path(runtime_dir, log_name)
    ensure_private_dir(path.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, PRIVATE_FILE)
    if os.fstat(descriptor).st_size > _MAX_LOG_BYTES:
        os.close(descriptor)
        path.replace(path.with_suffix(".log.old"))
        descriptor = os.open(path, flags, PRIVATE_FILE)
    try:
        os.fchmod(descriptor, PRIVATE_FILE)
        return subprocess.Popen(
            [*start.argv, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            cwd=runtime_dir,
            env={**daemon_environment(), **start.environ},
            start_new_session=True,
            umask=0o077,
        )
    finally:
        os.close(descriptor)


def log_path(runtime_dir: Path, log_name: str) -> Path:
    """Return where a program's log lies."""
    return runtime_dir / "logs" / f"{log_name}.log"


def find_broker(settings: Settings) -> BrokerInfo | None:
    """Return where the broker is, or None when none runs. Starts nothing, creates nothing, blocks on nothing."""
    path = runtime_dir(settings) / BROKER_FILE
    try:
        info = msgspec.json.decode(read_small(path, _MAX_INFO_BYTES), type=BrokerInfo)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.DecodeError):
        return None  # the next broker writes it anew; who cannot read it cannot connect either
    return None if liveness(info.process) is Liveness.DEAD else info


def silent_broker(info: BrokerInfo) -> BrokerUnavailableError:
    """Return the error for a broker that is there and does not answer: another cannot serve beside it."""
    pid = info.process.pid
    why = f"it is stopped: `kill -CONT {pid}` continues it" if is_stopped(info.process) else "it hangs"
    return BrokerUnavailableError(
        f"The broker (pid {pid}) does not answer; {why}. `pisub broker stop --force` ends it, and the next client "
        "starts another; runs and their results go on without.",
        code=BROKER_SILENT,
    )


def ensure_broker(
    settings: Settings, *, timeout_s: float = 10.0, is_given_up: Callable[[], bool] = lambda: False
) -> BrokerInfo:
    """Return where the broker is; start one when none runs. Blocks: asyncio programs call it in a thread.

    Any number of processes may call this at once: exactly one broker serves afterwards, and but one of them starts it.

    Args:
        settings: Where the broker is.
        timeout_s: How long to try.
        is_given_up: Asked again and again, in the caller's thread; true ends the attempt soon, with an error.

    Raises:
        BrokerUnavailableError: None could be started in time; the message has the end of its log.
        UnsafePathError: The runtime directory cannot be used.
    """
    end = time.monotonic() + timeout_s
    directory = ensure_private_dir(runtime_dir(settings))
    with StartLock(directory) as turn:
        while True:
            info = find_broker(settings)
            if info is not None:
                return info
            if is_given_up():
                raise BrokerUnavailableError("The search for a broker was given up.")
            if time.monotonic() >= end:
                raise _unavailable(directory, f"no broker came up within {timeout_s:g} s")
            if not turn.take():
                turn.pause()
                continue
            info = find_broker(settings)  # whoever had the turn before may have started it
            if info is not None:
                return info
            _take_turn(settings, directory, end, turn, is_given_up)


def _take_turn(
    settings: Settings, directory: Path, end: float, turn: StartLock, is_given_up: Callable[[], bool]
) -> None:
    if (known := turn.failed_meanwhile()) is not None:
        raise BrokerUnavailableError(known)
    try:
        code = _start_broker(settings, directory, end, is_given_up)
        if code not in (0, EXIT_ALREADY_RUNNING):
            raise _unavailable(directory, f"its start ended with code {code}")
    except BrokerUnavailableError as error:
        if not is_given_up():
            turn.leave_failure(error.message)
        raise
    if code == EXIT_ALREADY_RUNNING:
        time.sleep(_LOOK_AGAIN_S)  # the holder of the broker's lock is about to say where it is, or is leaving


def _start_broker(settings: Settings, directory: Path, end: float, is_given_up: Callable[[], bool]) -> int:
    arguments = ["--detach", "--runtime-dir", str(directory), "--log-level", settings.log_level]
    if settings.idle_exit_ms is not None:
        arguments += ["--idle-exit-ms", str(settings.idle_exit_ms)]
    try:
        starter = start_daemon(program("broker"), arguments, runtime_dir=directory, log_name="broker")
    except OSError as error:
        raise _unavailable(directory, str(error)) from error
    with starter:
        # It leaves as soon as the broker that it forked serves. Killed before, it leaves a broker or none.
        while True:
            try:
                return starter.wait(_LOOK_UP_S)
            except subprocess.TimeoutExpired:
                if time.monotonic() < end and not is_given_up():
                    continue
                starter.kill()
                raise _unavailable(directory, "its start took too long") from None


def _unavailable(directory: Path, reason: str) -> BrokerUnavailableError:
    path = log_path(directory, "broker")
    said = _last_words(path)
    ending = f" {said}" if said else ""
    return BrokerUnavailableError(f"The broker in {directory} cannot be used: {reason}.{ending} Its log: {path}")


def _last_words(log: Path) -> str:
    """Return what a program's last line in its log says: its reason, or the line itself, which ends a traceback."""
    line = read_tail(log, lines=1, chars=_TAIL_CHARS)
    try:
        return msgspec.json.decode(line, type=_LogLine).reason
    except msgspec.DecodeError:
        return line
