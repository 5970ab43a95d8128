"""Where a command's words go: the result to standard output, everything else to standard error.

It owns encoding, colour and the JSON form. It knows nothing of runs.
"""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TextIO

import msgspec

from pisub.utf8 import without_surrogates

#: Version of every ``--json`` object. It rises when a key changes its meaning or goes away, not when one is added.
JSON_SCHEMA_VERSION: Final = 1

_STYLES: Final[dict[str, str]] = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
#: Control characters, C1 included, without newline and tab: a child's text must not drive the terminal.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def safe(text: str) -> str:
    """Return a text from a child, with what could drive a terminal made visible."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}", text)


def safe_line(text: str, *, width: int | None = None) -> str:
    """Return a text as one safe line, cut to ``width`` characters."""
    line = " ".join(safe(text).split())
    if width is not None and len(line) > width:
        return line[: max(width - 1, 0)] + "…"
    return line


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


class TerminalClosedError(BrokenPipeError):
    """The terminal was closed: its reader went away, like a pipe's."""


class Console:
    """One command's output.

    Attributes:
        is_json: Whether results are JSON objects.
        is_interactive: Whether a person can be asked: standard input and standard error are terminals.
    """

    def __init__(
        self, *, out: TextIO, err: TextIO, is_json: bool = False, use_color: bool = False, is_interactive: bool = False
    ) -> None:
        self._out = out
        self._err = err
        self._use_color = use_color
        self._may_color_results = use_color and out.isatty()
        self.is_json = is_json
        self.is_interactive = is_interactive

    @classmethod
    def standard(cls, *, is_json: bool, may_color: bool) -> Console:
        """Return the console of this process. Standard output is UTF-8 whatever the locale says."""
        # A process may be started without them (`>&-`): its words go nowhere then, and its exit code still counts.
        out, err = (_nowhere() if stream is None else stream for stream in (sys.stdout, sys.stderr))
        for stream in (out, err):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(encoding="utf-8", errors="backslashreplace")
        is_terminal = err.isatty()
        return cls(
            out=out,
            err=err,
            is_json=is_json,
            use_color=is_terminal and may_color,
            is_interactive=is_terminal and sys.stdin is not None and sys.stdin.isatty(),
        )

    def result(self, text: str) -> None:
        """Write a result to standard output; it ends with a newline."""
        self._put(text if text.endswith("\n") or not text else f"{text}\n")

    def json(self, kind: str, values: Mapping[str, object]) -> None:
        """Write one JSON object, on one line, with ``schemaVersion`` and ``kind`` first."""
        document = {"schemaVersion": JSON_SCHEMA_VERSION, "kind": kind, **values}
        try:
            data = msgspec.json.encode(document)
        except UnicodeEncodeError:  # a name of the user's that is no UTF-8, in a message
            data = msgspec.json.encode(without_surrogates(document))
        self._put(data.decode() + "\n")

    def _put(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except OSError as error:
            if error.errno == errno.EIO:
                raise TerminalClosedError(*error.args) from error
            raise

    def say(self, text: str = "") -> None:
        """Write a line for people to standard error; on a full disk it is lost, and the command goes on."""
        try:
            self._err.write(f"{text}\n")
            self._err.flush()
        except BrokenPipeError:
            raise
        except OSError:
            pass

    def style(self, text: str, name: str) -> str:
        """Return a text in a colour, for standard error, where colours are wanted."""
        return f"\x1b[{_STYLES[name]}m{text}\x1b[0m" if self._use_color else text

    def style_result(self, text: str, name: str) -> str:
        """Return a text in a colour, for standard output: plain where that is a pipe or a file."""
        return self.style(text, name) if self._may_color_results else text

    def error(self, message: str, hint: str = "") -> None:
        """Say in one line what went wrong, and in another what to do."""
        self.say(f"{self.style('pisub: error:', 'red')} {safe_line(message)}")
        if hint:
            self.say(f"hint: {hint}")

    def warn(self, message: str) -> None:
        """Say in one line what was left out."""
        self.say(f"{self.style('warning:', 'yellow')} {safe_line(message)}")

    def confirm(self, question: str) -> bool:
        """Ask for a yes on the terminal. Anything else, also the end of input, is a no."""
        self._err.write(f"{question} [y/N] ")
        self._err.flush()
        return sys.stdin.readline().strip().lower() in {"y", "yes"}
