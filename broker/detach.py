"""Going into the background: the process that was started leaves once the broker that it forked serves.

So that a starter needs to wait for one exit code only, and nobody has a broker for a child that must be reaped.
"""

from __future__ import annotations

import os

from pisub.config import Settings

from .app import run


def run_detached(settings: Settings) -> int:
    """Fork; in the parent, return once the child serves or has given up.

    The fork comes before the first socket, thread or logger.

    Returns:
        In the parent: 0 when the child serves, else the child's exit code. In the child: its exit code at its end.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        # A session of its own before the parent's goes: a runner that happened to start this broker knows by it that
        # the process is not its child's, and leaves it alone.
        os.setsid()
        os.close(reader)

        def say_so() -> None:
            os.write(writer, b"\0")
            os.close(writer)

        return run(settings, on_serving=say_so)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        if pipe.read(1):
            return 0
    _, status = os.waitpid(child, 0)
    return abs(os.waitstatus_to_exitcode(status))
