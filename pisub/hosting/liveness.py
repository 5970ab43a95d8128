"""Whether a host's own session is live: what its record says, and the ends that this host has still to tell.

Owns the registrations in the registry of whoever hosts this program's sessions: they end with the host.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from pisub.client.bus import Sender
from pisub.client.liveness import COMPLETIONS, Life, forms_of, read_lives
from pisub.clock import Clock
from pisub.errors import PisubError, RefusedError
from pisub.hosting.desk import Report
from pisub.liveness import LivenessProvider, Release, announce
from pisub.protocol.seams import SessionLife, SessionLive
from pisub.record.layout import Layout

#: Our name among a registry's providers (contract, integrations 7a).
PROVIDER_NAME: Final = "pi-subagents"


class SessionLiveness:
    """The liveness of one session.

    Args:
        layout: The record.
        session_id: The session.
        clock: Time.
        report: Told what is wrong with a registry.
        has_ends: Whether ends wait to be told by this host.
        is_host: Whether this process holds the role.
    """

    def __init__(
        self,
        layout: Layout,
        session_id: str,
        *,
        clock: Clock,
        report: Report,
        has_ends: Callable[[], bool],
        is_host: Callable[[], bool],
    ) -> None:
        self._layout = layout
        self._session_id = session_id
        self._clock = clock
        self._report = report
        self._has_ends = has_ends
        self._is_host = is_host
        self._releases: list[Release] = []

    def life(self, session_file: str | None = None) -> Life:
        """Look now. Blocks for as long as it takes to read the live runs.

        Raises:
            OSError: What waits to be told cannot be read. Whoever asks takes it for live.
        """
        forms = forms_of(self._session_id, session_file)
        lives = read_lives(self._layout, forms, now_ms=self._clock.wall_ms())
        reasons = [reason for life in lives for reason in life.reasons]
        if self._has_ends():
            reasons.append(COMPLETIONS)
        return Life(
            session_id=self._session_id,
            active_runs=tuple(run_id for life in lives for run_id in life.active_runs),
            reasons=tuple(dict.fromkeys(reasons)),
            problems=tuple(problem for life in lives for problem in life.problems),
        )

    def announce(self, registry: Any, session_file: str | None) -> Release:
        """Be the session's provider in a registry, until released or closed."""
        provider = LivenessProvider(
            name=PROVIDER_NAME,
            session_id=self._session_id,
            session_file=session_file,
            is_active=lambda: self.life(session_file).is_live,
        )
        release = announce(registry, provider, self._report)
        self._releases.append(release)
        return release

    async def answer(self, _: SessionLive, __: Sender) -> SessionLife:
        """Answer a client's question."""
        if not self._is_host():
            raise RefusedError("This process is not the session's host.")
        try:
            life = await asyncio.to_thread(self.life)
        except (PisubError, OSError) as error:
            return SessionLife(session_id=self._session_id, is_live=True, reasons=(str(error)[:200],))
        return SessionLife(session_id=self._session_id, is_live=life.is_live, reasons=life.reasons)

    def close(self) -> None:
        """Take every registration back. Idempotent."""
        releases, self._releases = self._releases, []
        for release in releases:
            release()
