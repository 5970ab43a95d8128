"""How a program hands its structured result over: a file in a private directory, which only it is told of.

The directory is made for one start of one program, with a name that nobody knows before, and is removed with it. What
lies there is taken only as a regular file of this user's, with one name, within the bound: a link is not followed.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from pisub.config import OUTPUT_SCHEMA_VARIABLE, STRUCTURED_OUTPUT_VARIABLE
from pisub.protocol.limits import MAX_STRUCTURED_BYTES
from pisub.small_files import file_of

_PRIVATE_FILE = 0o600


class NoStructuredFile(Exception):  # noqa: N818  # an answer, not a fault
    """There is no value to take; the text says why, '' where there is no file at all."""


class StructuredFile:
    """The directory of one program. Use it as a context manager."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="pisub-output-"))
        self._schema = self._directory / "schema.json"
        self._output = self._directory / "output.json"
        descriptor = os.open(self._schema, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE_FILE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(schema))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def variables(self) -> dict[str, str]:
        """What the program's environment needs: where the schema is, and where its value goes."""
        return {OUTPUT_SCHEMA_VARIABLE: str(self._schema), STRUCTURED_OUTPUT_VARIABLE: str(self._output)}

    def read(self) -> Any:
        """Return the value that the program wrote.

        Raises:
            NoStructuredFile: It wrote none, or none that can be taken.
        """
        try:
            descriptor = os.open(self._output, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise NoStructuredFile("") from None
        except OSError as error:
            raise NoStructuredFile(f"it cannot be read: {error.strerror}") from error
        with contextlib.suppress(IsADirectoryError), file_of(descriptor) as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink != 1:
                raise NoStructuredFile("it is no plain file of this user's, with one name")
            return _decode(file)
        raise NoStructuredFile("it is a directory")


def _decode(file: io.FileIO) -> Any:
    data = bytearray()
    while chunk := file.read(MAX_STRUCTURED_BYTES * 2 + 1 - len(data)):
        data += chunk
        if len(data) > MAX_STRUCTURED_BYTES * 2:  # with white space a value may have more bytes than as compact JSON
            raise NoStructuredFile(f"it has more than {MAX_STRUCTURED_BYTES * 2} bytes")
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NoStructuredFile(f"it is no JSON: {error}") from error
