"""What any client may ask a session's host besides questions and delegations: whether the session is live."""

from __future__ import annotations

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


SeamMessage = SessionLive | SessionLife
