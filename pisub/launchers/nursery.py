"""The launcher's side of a nursery: find it, start it where there is none, and ask it for one runner.

Blocking, for a thread of its own. The nursery is started at most once for all launchers of one runtime directory and
key: its ``flock`` decides, and those that lose it say so by their exit code.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from pisub.config import interpreter_environment
from pisub.errors import PisubError, ProtocolError
from pisub.launch import EXIT_ALREADY_RUNNING, Program, log_path, start_daemon
from pisub.launchers.protocol import (
    MAX_PACKET_BYTES,
    LaunchAnswer,
    LaunchRequest,
    decode_answer,
    encode_packet,
    memory_file,
)
from pisub.paths import PRIVATE_FILE
from pisub.process import Liveness, ProcessIdentity, is_stopped, liveness
from pisub.small_files import read_small

#: A cold nursery is up in 0.2 s, in 3 s on a busy machine; then there is the other way to launch.
START_TIMEOUT_S: Final = 10.0
#: A fork takes 4 ms, on a machine that thrashes a second. One that is silent for longer is wedged.
ANSWER_TIMEOUT_S: Final = 10.0
#: One that was seen stopped at this many looks in a row will not answer before somebody continues it: not waited for.
_STOPPED_LOOKS: Final = 3
_STOPPED_LOOK_S: Final = 0.3
#: Another launcher's nursery is looked for this often while it starts.
_LOOK_S: Final = 0.01
_MAX_IDENTITY_BYTES: Final = 4096
_CREDENTIALS: Final = struct.Struct("3i")


class NurseryUnavailableError(PisubError):
    """No nursery took the launch, or it is not known whether one did. Asking again is safe: a run begins once."""

    code = "nursery_unavailable"


class NurserySilentError(NurseryUnavailableError):
    """A nursery is there and says nothing. Asking it again would be silence again."""

    code = "nursery_silent"


class NurseryPaths(msgspec.Struct, frozen=True):
    """Where a nursery's socket and lock are."""

    runtime_dir: Path
    key: str

    @property
    def socket(self) -> Path:
        """The socket it listens on."""
        return self.runtime_dir / f"nursery-{self.key}.sock"

    @property
    def log_name(self) -> str:
        """Its log in the runtime directory."""
        return f"nursery-{self.key}"

    @property
    def lock(self) -> Path:
        """The file whose ``flock`` it holds; its content says who it is."""
        return self.runtime_dir / f"nursery-{self.key}.lock"


def launch_by_nursery(
    paths: NurseryPaths,
    request: LaunchRequest,
    letter: bytes,
    *,
    find_program: Callable[[], Program],
    idle_exit_ms: int | None = None,
) -> LaunchAnswer:
    """Have a runner forked, starting the nursery (by ``find_program``) if there is none.

    Raises:
        NurseryUnavailableError: None could be reached or started, or its answer did not come.
    """
    connection = _connect(paths.socket) or _start(paths, find_program, idle_exit_ms)
    with connection:
        return _ask(connection, paths, request, letter)


def nurseries(runtime_dir: Path) -> list[ProcessIdentity]:
    """Return the nurseries of a runtime directory that live. A run's cleanup must spare them, whoever started them."""
    found = (_holder(path) for path in sorted(runtime_dir.glob("nursery-*.lock")))
    return [each for each in found if each is not None]


def _holder(lock: Path) -> ProcessIdentity | None:
    """Return the live nursery that a lock's file names; None where there is none, or it cannot be read."""
    try:
        identity = msgspec.json.decode(read_small(lock, _MAX_IDENTITY_BYTES), type=ProcessIdentity)
    except (OSError, msgspec.DecodeError):
        return None
    return None if liveness(identity) is Liveness.DEAD else identity


def peer_user(connection: socket.socket) -> int:
    """Return the user id of the process at the other end, as the kernel knows it."""
    _, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(uid)


def _connect(path: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(ANSWER_TIMEOUT_S)
        connection.connect(str(path))
        uid = peer_user(connection)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except OSError as error:
        connection.close()
        raise NurseryUnavailableError(f"The nursery at {path} cannot be reached: {error.strerror}.") from error
    if uid != os.geteuid():
        connection.close()
        raise NurseryUnavailableError(f"{path} is served by another user: remove it or change PISUB_RUNTIME_DIR.")
    return connection


def _start(paths: NurseryPaths, find_program: Callable[[], Program], idle_exit_ms: int | None) -> socket.socket:
    """Start a nursery, or wait for the one that somebody else is starting, and connect to it."""
    end = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < end:
        if not _is_locked(paths.lock):
            code = _start_one(paths, find_program(), idle_exit_ms, end)
            if code not in (0, EXIT_ALREADY_RUNNING):
                log = log_path(paths.runtime_dir, paths.log_name)
                raise NurseryUnavailableError(f"The nursery could not be started (exit code {code}): see {log}.")
        connection = _connect(paths.socket)
        if connection is not None:
            return connection
        time.sleep(_LOOK_S)
    raise NurseryUnavailableError(f"No nursery served {paths.socket} within {START_TIMEOUT_S:g} s.")


def _start_one(paths: NurseryPaths, start: Program, idle_exit_ms: int | None, end: float) -> int:
    """Start a nursery and return the exit code of the process that was started, which leaves as soon as it serves."""
    # What the loader and the interpreter read at their start is part of the key, so it must be the launcher's.
    start = Program(start.argv, {**interpreter_environment(), **start.environ})
    arguments = ["nursery", "--runtime-dir", str(paths.runtime_dir), "--key", paths.key]
    if idle_exit_ms is not None:
        arguments += ["--idle-exit-ms", str(idle_exit_ms)]
    try:
        starter = start_daemon(start, arguments, runtime_dir=paths.runtime_dir, log_name=paths.log_name)
    except OSError as error:
        raise NurseryUnavailableError(f"{start.argv[0]} cannot be started: {error.strerror}.") from error
    with starter:
        try:
            return starter.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            starter.kill()
            raise NurseryUnavailableError("The start of a nursery took too long.") from None


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_FILE)
    except OSError as error:
        raise NurseryUnavailableError(f"{path} cannot be used: {error.strerror}.") from error
    try:
        # Shared: two who look at once do not take each other for a nursery.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _ask(connection: socket.socket, paths: NurseryPaths, request: LaunchRequest, letter: bytes) -> LaunchAnswer:
    try:
        memory = memory_file(letter)
    except OSError as error:
        raise NurseryUnavailableError(f"No memory file could be made for the launch: {error.strerror}.") from error
    try:
        socket.send_fds(connection, [encode_packet(request)], [memory])
        data = _receive(connection, paths)
    except OSError as error:
        raise NurseryUnavailableError(f"The nursery did not answer: {error.strerror or error}.") from error
    finally:
        os.close(memory)
    if data is None:
        raise NurserySilentError(f"The nursery at {paths.socket} does not answer.")
    if not data:
        raise NurseryUnavailableError("The nursery left before it answered.")
    try:
        return decode_answer(data)
    except ProtocolError as error:
        raise NurseryUnavailableError(f"The nursery's answer does not decode: {error.message}") from error


def _receive(connection: socket.socket, paths: NurseryPaths) -> bytes | None:
    """Return the answer; None when it does not come: the nursery is stopped, or was silent for too long.

    A busy nursery is waited for. A stopped one may carry the launch out once it is continued: its runner then finds
    that the run has begun elsewhere.
    """
    end = time.monotonic() + ANSWER_TIMEOUT_S
    connection.settimeout(_STOPPED_LOOK_S)
    looks = 0
    while time.monotonic() < end and looks < _STOPPED_LOOKS:
        try:
            return connection.recv(MAX_PACKET_BYTES)
        except TimeoutError:
            holder = _holder(paths.lock)
            looks = looks + 1 if holder is not None and is_stopped(holder) else 0
    return None
