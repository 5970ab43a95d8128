"""Which run, session or answers a command means, from what the user typed."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pisub.config import Settings
from pisub.errors import InvalidArgumentError
from pisub.protocol.limits import MAX_TASK_BYTES
from pisub.record.layout import Layout
from pisub.record.reader import find_run

if TYPE_CHECKING:
    from argparse import Namespace
    from typing import BinaryIO

    from pisub.cli.console import Console
    from pisub.hosting.dialogs import Dialogs

_PROJECT_MARKS = (".pisub", ".git")
_STANDARD_INPUT = "-"


def pick_run(settings: Settings, layout: Layout, text: str) -> str:
    """Return the run that an id or a prefix means: one of the current session first, else one of all.

    Raises:
        UnknownRunError: None fits.
        AmbiguousIdError: Several fit.
    """
    return find_run(layout, text, session_id=settings.session)


def inbox_session(cwd: Path) -> str:
    """Return a project's shared session: of the nearest directory with .pisub or .git, else of ``cwd`` itself."""
    start = cwd.resolve()
    root = next(
        (each for each in (start, *start.parents) if any((each / mark).exists() for mark in _PROJECT_MARKS)), start
    )
    return f"project:{hashlib.sha256(os.fsencode(root)).hexdigest()}"


def read_task(arguments: Namespace) -> str:
    """Return the task: the argument, a file's text, or standard input, byte for byte.

    Raises:
        InvalidArgumentError: None or two were given, it cannot be read, or it is not UTF-8.
    """
    if (arguments.task is None) == (arguments.task_file is None):
        raise InvalidArgumentError("Give one task: TASK, --task-file FILE, or - for standard input.", field="task")
    if arguments.task_file is not None:
        return _decode(read_file(arguments.task_file, "task"), str(arguments.task_file))
    if arguments.task == _STANDARD_INPUT:
        return _decode(_read_bounded(sys.stdin.buffer, "standard input", "task"), "standard input")
    return str(arguments.task)


def read_value(text: str) -> str:
    """Return an answer: the argument, or standard input without its last newline for ``-``."""
    if text != _STANDARD_INPUT:
        return text
    return _decode(_read_bounded(sys.stdin.buffer, "standard input", "answer"), "standard input").removesuffix("\n")


def read_file(path: Path, field: str) -> bytes:
    """Read a file that the user named.

    Raises:
        InvalidArgumentError: It cannot be read.
    """
    try:
        with path.open("rb") as file:
            return _read_bounded(file, str(path), field)
    except OSError as error:
        raise InvalidArgumentError(f"{path} cannot be read: {error.strerror}.", field=field) from error


def _read_bounded(file: BinaryIO, name: str, field: str) -> bytes:
    """Read to the end, or to where it is clear that it is too long: `/dev/zero` has no end."""
    data = file.read(MAX_TASK_BYTES + 1)
    if len(data) > MAX_TASK_BYTES:
        raise InvalidArgumentError(f"{name} has more than {MAX_TASK_BYTES} bytes.", field=field)
    return data


def choose_dialogs(console: Console, answers: Path | None, *, bell: bool = True) -> Dialogs | None:
    """Return how questions are asked: a file's answers, this terminal, or None where there is neither.

    Raises:
        InvalidArgumentError: The answers' file cannot be used.
    """
    if answers is not None:
        return script_dialogs(console, answers)
    if console.is_interactive:
        from pisub.hosting.terminal import TerminalDialogs  # noqa: PLC0415  # prompt_toolkit: only who asks there pays

        return TerminalDialogs(bell=bell)
    return None


def script_dialogs(console: Console, answers: Path) -> Dialogs:
    """Return dialogs that a file's list answers, in sight of whoever watches.

    Raises:
        InvalidArgumentError: The file cannot be used.
    """
    from pisub.cli.narrated import NarratedDialogs  # noqa: PLC0415  # only who scripts pays
    from pisub.hosting.scripted import ScriptedHuman, load_answers  # noqa: PLC0415  # YAML likewise

    return NarratedDialogs(ScriptedHuman(load_answers(answers)), console)


def _decode(raw: bytes, place: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"{place} is not UTF-8: byte {error.start} is wrong.", field="task") from error
