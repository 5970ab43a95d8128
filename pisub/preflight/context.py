"""Which context a child begins with. Pure.

A context that somebody asked for stands, also where this process cannot prove that it can be had; one that only follows
from a default is forked where there is something to fork, else it is fresh, silently (contract, delegation 2.5).
"""

from __future__ import annotations


def resolve_context(
    *,
    explicit: str | None = None,
    configured: str | None = None,
    agent_default: str | None = None,
    has_parent_session: bool = False,
    leaf_id: str | None = None,
) -> str:
    """Return ``fresh`` or ``fork``.

    Args:
        explicit: What the caller asks for.
        configured: The setting ``default_context``.
        agent_default: What the agent's file says.
        has_parent_session: Whether the parent's session file is there.
        leaf_id: The place in it from which would be forked.
    """
    if explicit is not None:
        return explicit
    wanted = configured or agent_default or "fresh"
    return "fork" if wanted == "fork" and has_parent_session and leaf_id else "fresh"
