"""What any client may ask a session's host besides questions and delegations: its liveness, and external runs."""

from __future__ import annotations

from typing import Any

from pisub.protocol.base import Message


class SessionLive(Message, frozen=True, kw_only=True, tag="pisub:session-live"):
    """Is the session live? To the role ``host``, in the session's scope."""


class SessionLife(Message, frozen=True, kw_only=True, tag="pisub:session-life"):
    """A host's answer. A host that reaps sessions keeps one that is live, and one that it got no such answer about.

    Attributes:
        reasons: Why it is live, in a word each: ``runs``, ``completions``, ``unreadable``.
    """

    session_id: str
    is_live: bool
    reasons: tuple[str, ...] = ()


class ExternalRunRegister(Message, frozen=True, kw_only=True, tag="pi-subagents.external-runs.v2:register"):
    """Show a piece of work that is no run of pisub's. ``run`` is checked by the host (contract, integrations 4)."""

    run: dict[str, Any]


class ExternalRunUpdate(Message, frozen=True, kw_only=True, tag="pi-subagents.external-runs.v2:update"):
    """Change what is shown of one: all of ``patch`` or nothing."""

    id: str
    patch: dict[str, Any]


class ExternalRunUnregister(Message, frozen=True, kw_only=True, tag="pi-subagents.external-runs.v2:unregister"):
    """Show it no more."""

    id: str


class ExternalRunList(Message, frozen=True, kw_only=True, tag="pi-subagents.external-runs.v2:list"):
    """Which are shown?"""

    ignore_malformed: bool = False


class ExternalRunAnswer(Message, frozen=True, kw_only=True, tag="pi-subagents.external-runs.v2:answer"):
    """The host's answer to all four.

    Attributes:
        runs: Of a list: those that are shown; else the one that was written.
        is_found: Whether there was one to remove.
    """

    runs: tuple[dict[str, Any], ...] = ()
    is_found: bool = True


SeamMessage = (
    SessionLive
    | SessionLife
    | ExternalRunRegister
    | ExternalRunUpdate
    | ExternalRunUnregister
    | ExternalRunList
    | ExternalRunAnswer
)
