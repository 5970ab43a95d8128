"""One command, carried out: parsed, its module imported, what goes wrong turned into a line and an exit code.

A user's mistake never shows a traceback; a bug shows one only where ``PISUB_DEBUG`` asks for it.
"""

from __future__ import annotations

import errno
import importlib
import os
import traceback
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import Final, cast

from pisub.cli.console import Console
from pisub.cli.exits import Exit, exit_for_error
from pisub.cli.parser import CommandLineError, command_named, parse
from pisub.config import Settings, is_debugging, load_settings, wants_color
from pisub.errors import CapReachedError, PisubError
from pisub.ids import check_session_id

#: What the machine does to a program that is right: a full disk, no rights, no descriptors, a directory that is gone.
_ENVIRONMENT: Final = frozenset(
    {
        errno.EACCES,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EIO,
        errno.EMFILE,
        errno.ENAMETOOLONG,
        errno.ENFILE,
        errno.ENOENT,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.EPERM,
        errno.EROFS,
    }
)

RunCommand = Callable[[Namespace, Console, Settings], Exit]

_HINTS: Final[dict[str, str]] = {
    "broker_unavailable": "`pisub doctor` checks the setup",
    "launch_failed": "`pisub doctor` checks the setup",
    "record_corrupt": "nothing was changed; move the file away to go on without it",
}


def dispatch(argv: Sequence[str]) -> Exit:
    """Run one command and return its exit code."""
    console = Console.standard(is_json="--json" in argv, may_color=wants_color())
    try:
        arguments = parse(argv)
        console.is_json = getattr(arguments, "json", False)
        settings = load_settings(session=getattr(arguments, "session", None))
        if settings.session is not None:
            check_session_id(settings.session)
        module = importlib.import_module(f"pisub.cli.commands.{command_named(arguments.command).module}")
        command = cast("RunCommand", module.run)
        return command(arguments, console, settings)
    except CommandLineError as error:
        console.error(error.message, f"`{error.usage} --help` shows how")
        return Exit.USAGE
    except PisubError as error:
        if is_debugging():
            traceback.print_exc()
        console.error(error.message, _HINTS.get(error.code, ""))
        if console.is_json:
            console.json("error", {"code": error.code, "message": error.message, "field": error.field, **_room(error)})
        return exit_for_error(error)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno not in _ENVIRONMENT:
            return _bug(error, console)
        if is_debugging():
            traceback.print_exc()
        console.error(_said_by_the_system(error), "`pisub doctor` checks the setup")
        return Exit.RECORD
    except Exception as error:  # noqa: BLE001  # the last line of defence: a bug becomes a sentence, not a traceback
        return _bug(error, console)


def _room(error: PisubError) -> dict[str, int | str]:
    """Return what an error says of a cap that was reached."""
    if not isinstance(error, CapReachedError):
        return {}
    return {"used": error.used, "limit": error.limit, "path": error.path}


def _bug(error: Exception, console: Console) -> Exit:
    if is_debugging():
        traceback.print_exc()
    console.error(f"this is a bug of pisub's: {type(error).__name__}: {error}", "PISUB_DEBUG=1 shows the traceback")
    return Exit.INTERNAL


def _said_by_the_system(error: OSError) -> str:
    reason = error.strerror or type(error).__name__
    if error.filename is not None:
        return f"{os.fsdecode(error.filename) if isinstance(error.filename, bytes) else error.filename}: {reason}."
    # Only the question for the current directory has no name to give.
    return "The current directory does not exist any more." if error.errno == errno.ENOENT else f"{reason}."
