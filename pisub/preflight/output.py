"""Where a child's result is written besides the record, and what its starter is shown of it. Pure."""

from __future__ import annotations

import os

from pisub.protocol.base import Part

#: What each mode means is shown of the result: the text, or where it is.
INLINE = "inline"
FILE_ONLY = "file-only"


class OutputBinding(Part, frozen=True, kw_only=True):
    """The output of one launch. Without a path it is inline."""

    path: str | None = None
    mode: str = INLINE


def bind_output(
    *,
    requested: str | bool | None = None,
    agent_output: str | None = None,
    requested_mode: str | None = None,
    agent_mode: str | None = None,
    cwd: str,
) -> OutputBinding:
    """Return where the result goes.

    Args:
        requested: The caller's: a path, False for no file, None for the agent's.
        agent_output: The agent's; '' for no file.
        requested_mode: ``inline``, ``file-only``, or None for the agent's.
        agent_mode: The agent's.
        cwd: Absolute; a relative path lies below it.
    """
    wanted = agent_output if requested is None or requested is True else requested
    if not wanted:
        return OutputBinding()
    path = os.path.normpath(os.path.join(cwd, os.path.expanduser(str(wanted))))  # noqa: PTH111, PTH118  # a text
    return OutputBinding(path=path, mode=requested_mode or agent_mode or INLINE)
