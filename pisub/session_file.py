"""A child's session: what a run that resumes this one needs to go on where it was.

``session.jsonl`` holds one JSON object per line, in order: a head, the messages that the child got, the answers of
humans, and the entries that the agent itself wrote. A resumed run begins with a copy. Only the run's own process
appends. It must not know the record's layout, the broker or the runner.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from pisub.errors import InvalidArgumentError, RecordCorruptError, RefusedError, UnsafePathError
from pisub.protocol.checkpoint import Answer, Question
from pisub.protocol.limits import MAX_SESSION_FILE_BYTES, MIB

VERSION: Final = 1
#: One entry of an agent's.
MAX_ENTRY_BYTES: Final = MIB
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_APPEND: Final = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class SessionLine(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", omit_defaults=True):
    """One line. Unknown keys are ignored."""


class SessionHead(SessionLine, frozen=True, kw_only=True, tag="session"):
    """The first line of a run's own part."""

    version: int = VERSION
    run_id: str
    agent: str
    resumed_from: str = ""


class SessionMessage(SessionLine, frozen=True, kw_only=True, tag="message"):
    """Something the child was told: its task, a resume's message, a steering message."""

    kind: str  # task | resume | steer
    text: str


class SessionAnswer(SessionLine, frozen=True, kw_only=True, tag="answer"):
    """A human's answer. The same question asked again in a resumed run gets it."""

    question: Question
    answer: Answer


class SessionEntry(SessionLine, frozen=True, kw_only=True, tag="entry"):
    """What the agent wrote down for itself: any JSON value."""

    value: Any


AnySessionLine = SessionHead | SessionMessage | SessionAnswer | SessionEntry


def encode_lines(lines: Iterable[AnySessionLine]) -> bytes:
    """Return lines as they stand in the file."""
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def read_session_bytes(path: Path) -> bytes | None:
    """Read a session file whole, without a torn last line; None when there is none.

    Raises:
        UnsafePathError: It is a symlink or no regular file of the user's.
        RecordCorruptError: It is larger than any session file is.
    """
    try:
        descriptor = os.open(path, _READ)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnsafePathError(f"{path} is a symlink or no regular file: {error.strerror}.") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise UnsafePathError(f"{path} is no regular file of yours.")
        if found.st_size > MAX_SESSION_FILE_BYTES + MAX_ENTRY_BYTES:
            raise RecordCorruptError(f"{path} has {found.st_size} bytes; no session file is that large.")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read()
    finally:
        os.close(descriptor)
    return data[: data.rindex(b"\n") + 1] if b"\n" in data else b""


def decode_lines(data: bytes, path: Path) -> list[AnySessionLine]:
    """Return the lines of a session file. Lines of a newer kind are skipped.

    Raises:
        RecordCorruptError: A line does not parse, or there is no head.
    """
    lines: list[AnySessionLine] = []
    for number, raw in enumerate(data.splitlines(), start=1):
        try:
            kind = msgspec.json.decode(raw, type=dict[str, Any]).get("type")
            if kind in ("session", "message", "answer", "entry"):
                lines.append(msgspec.json.decode(raw, type=AnySessionLine))
        except (msgspec.DecodeError, RecursionError) as error:
            raise RecordCorruptError(f"{path}, line {number}, does not parse ({error}).") from error
    if not lines or not isinstance(lines[0], SessionHead):
        raise RecordCorruptError(f"{path} does not begin with the head of a session.")
    return lines


class Session:
    """The session of one running child: what came before, and a way to write on. For the agent's thread.

    Args:
        path: The file; None keeps everything in memory, for tests of agents.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lines: list[AnySessionLine] = []
        self._size = 0
        if path is not None:
            data = read_session_bytes(path)
            if data:
                self._lines = decode_lines(data, path)
                self._size = len(data)

    @property
    def is_resumed(self) -> bool:
        """Whether this run goes on with another."""
        heads = [line for line in self._lines if isinstance(line, SessionHead)]
        return bool(heads) and bool(heads[-1].resumed_from)

    @property
    def lines(self) -> tuple[AnySessionLine, ...]:
        """Everything, oldest first, of the resumed runs too."""
        return tuple(self._lines)

    def read(self) -> list[Any]:
        """Return the entries that the agent wrote, oldest first, of the resumed runs too."""
        return [line.value for line in self._lines if isinstance(line, SessionEntry)]

    def append(self, value: Any) -> None:
        """Write an entry. It is in the file, and with a resumed run, when this returns.

        Args:
            value: Any JSON value, at most 1 MiB of it.

        Raises:
            InvalidArgumentError: It is no JSON value, or too large.
            RefusedError: The session file is full.
            OSError: It could not be written.
        """
        try:
            data = msgspec.json.encode(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidArgumentError(f"The entry is no JSON value: {error}.", field="value") from error
        if len(data) > MAX_ENTRY_BYTES:
            raise InvalidArgumentError("An entry of a session has at most 1 MiB.", field="value")
        self.write(SessionEntry(value=msgspec.json.decode(data)))

    def write(self, line: AnySessionLine) -> None:
        """Append one line; used by the engine for what the child got."""
        data = encode_lines([line])
        if self._size + len(data) > MAX_SESSION_FILE_BYTES:
            raise RefusedError(
                f"The session has its {MAX_SESSION_FILE_BYTES // MIB} MiB: write what is large to a file.",
                code="session_full",
            )
        if self._path is not None:
            _append(self._path, self._size, data)
        self._size += len(data)
        self._lines.append(line)


def _append(path: Path, size: int, data: bytes) -> None:
    """Write at the end of what is known to be whole: a line that was torn before is cut off."""
    descriptor = os.open(path, _APPEND)
    try:
        os.ftruncate(descriptor, size)
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
    except BaseException:
        os.ftruncate(descriptor, size)
        raise
    finally:
        os.close(descriptor)
