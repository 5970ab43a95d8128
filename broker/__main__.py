"""``python -m broker``: serve one runtime directory. Started by clients, seldom by hand."""

from __future__ import annotations

import argparse
import sys

from pisub.config import load_settings
from pisub.errors import PisubError

from .app import run
from .detach import run_detached


def main(arguments: list[str] | None = None) -> int:
    """Read the arguments and serve.

    Returns:
        The exit code of ``app.run``; 2 for a wrong setting.
    """
    parser = argparse.ArgumentParser(prog="broker", description="The message broker of one runtime directory.")
    parser.add_argument("--runtime-dir", help="directory of the socket, the lock and the logs")
    parser.add_argument("--detach", action="store_true", help="go on in the background once the broker serves")
    parser.add_argument("--idle-exit-ms", type=int, help="leave after this long without a peer")
    parser.add_argument("--log-level", help="debug, info, warning or error")
    given = parser.parse_args(arguments)
    try:
        settings = load_settings(
            runtime_dir=given.runtime_dir, idle_exit_ms=given.idle_exit_ms, log_level=given.log_level
        )
        return run_detached(settings) if given.detach else run(settings)
    except PisubError as error:
        sys.stderr.write(f"broker: {error.message}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
