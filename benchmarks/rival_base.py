"""What the rivals share: the bodies that they carry, starting a server of one's own, saying what is missing.

A rival is a module ``rival_<name>`` with ``case``, ``server``, ``ask`` and ``answer``, see ``Rival``. Its packages are
not ours: they are looked up by name, as ``Any``, so that the tree is checked the same with and without them.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Protocol

import msgspec

from benchmarks.bus_worker import Ping, Pong
from benchmarks.load_lanes import Seen
from pisub.config import caller_environment

_READY_S: Final = 60.0
PAYLOAD: Final = "x" * 300
#: An answer that takes longer is lost.
TIMEOUT_S: Final = 30.0


class MissingError(Exception):
    """The rival cannot be run here. The message says what is missing."""


class Server(msgspec.Struct, frozen=True):
    """What lies between the two clients: where it is, and the process whose CPU time counts."""

    endpoint: str
    pid: int


class Rival(Protocol):
    """The shape of a rival's module."""

    @property
    def case(self) -> str:
        """Its name in the result."""
        ...

    def server(self, directory: Path) -> AbstractContextManager[Server]:
        """Run what lies between, with all its files in ``directory``. Raises ``MissingError``."""
        ...

    def ask(self, endpoint: str) -> None:
        """Be the asking process: carry out the loads that come in as lines."""
        ...

    def answer(self, endpoint: str) -> None:
        """Be the answering process until the input ends."""
        ...


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_ping: Final = msgspec.msgpack.Decoder(Ping).decode
_decode_pong: Final = msgspec.msgpack.Decoder(Pong).decode


def ping(number: int) -> bytes:
    """Make a question's body: what pisub's own benchmark sends."""
    return _encode(Ping(number=number, payload=PAYLOAD))


def pong(body: bytes) -> Pong:
    """Read an answer's body."""
    return _decode_pong(body)


class Answerer:
    """Makes the answers' bodies, and says in each how often it was asked."""

    def __init__(self) -> None:
        self._seen = Seen()

    def __call__(self, body: bytes) -> bytes:
        """Answer one question."""
        question = _decode_ping(body)
        return _encode(Pong(number=question.number, payload=question.payload, times=self._seen(question.number)))


def program(name: str) -> str:
    """Find a server's program, in this environment or on the path.

    Raises:
        MissingError: There is none.
    """
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise MissingError(f"no {name} on PATH (make bench-rivals installs what it can)")
    return found


def free_port() -> int:
    """Return a port of the loopback that was free a moment ago, for servers that cannot choose one themselves."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(
    argv: list[str], directory: Path, is_ready: Callable[[int], bool], *, environ: Mapping[str, str] | None = None
) -> Generator[int]:
    """Run a server with its output in a file, wait until it is ready, give its pid, and end it.

    Raises:
        MissingError: It ended, or was not ready in time; the message has the end of its output.
    """
    log = directory / "output.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**caller_environment(), **(environ or {})},
            start_new_session=True,  # as our broker's, see harness.Worker
        )
    try:
        if not wait_for(lambda: process.poll() is not None or is_ready(process.pid)) or process.poll() is not None:
            said = log.read_text(errors="replace").strip().splitlines()[-1:] or ["nothing"]
            raise MissingError(f"{argv[0]} did not start; it said: {said[0]}")
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(is_so: Callable[[], bool]) -> bool:
    """Wait until something is so; False when it is not within a minute."""
    end = time.monotonic() + _READY_S
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def accepts(port: int) -> bool:
    """Whether something listens on a port of the loopback."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
