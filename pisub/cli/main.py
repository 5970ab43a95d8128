"""The entry point. It imports nothing before it can answer a Ctrl-C, which may come at any moment of a start."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        from pisub.cli.console import TerminalClosedError  # noqa: PLC0415  # likewise
        from pisub.cli.dispatch import dispatch  # noqa: PLC0415  # the imports are most of a short command's time
        from pisub.cli.exits import Exit  # noqa: PLC0415  # likewise

        try:
            return int(dispatch(sys.argv[1:] if argv is None else argv))
        except BrokenPipeError as error:
            # The interpreter flushes standard output once more at its end, which would complain about the same pipe.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return int(Exit.HANG_UP if isinstance(error, TerminalClosedError) else Exit.BROKEN_PIPE)
    except KeyboardInterrupt:
        return _INTERRUPTED
