"""What a program asks and sets before it launches anything: the contract of a launch, and the ceilings of its session.

The base of ``Client``. It needs the record and the agents' files, and no broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pisub.agents.discovery import AgentFinder, builtin_names
from pisub.agents.runtime import RuntimeRegistration
from pisub.client.launching import preflight_in, put_ceiling
from pisub.client.looks import SessionLooks
from pisub.config import Settings
from pisub.preflight.contract import Preflight
from pisub.record.ceilings import CeilingHandle
from pisub.record.layout import Layout


class SessionRules(SessionLooks):
    """One session, as far as what may be launched in it goes.

    Attributes:
        session_id: The session.
        settings: What it was made with.
        layout: The record on disk.
    """

    def __init__(self, *, session_id: str, settings: Settings, layout: Layout, finder: AgentFinder) -> None:
        super().__init__(session_id=session_id, settings=settings, layout=layout)
        self._finder = finder

    async def preflight(
        self,
        agent: str,
        task: str = "",
        cwd: Path | str | None = None,
        *,
        run_id: str | None = None,
        ceiling: Mapping[str, Any] | None = None,
        **wishes: Any,
    ) -> Preflight:
        """Say what exactly ``spawn`` would launch with these arguments, and with which digests. Changes nothing.

        Args:
            agent: As for ``spawn``, like ``task``, ``cwd`` and ``ceiling``.
            task: The prompt; only its digest is in the answer.
            cwd: The run's working directory; None is this process's.
            run_id: The id that the run would have; it is part of its paths, and so of the contract's ``digest``.
            ceiling: Besides what holds for the session.
            **wishes: Fields of ``pisub.preflight.Wishes``, such as ``context``, ``model``, ``skill``, ``output``; and
                of ``PreflightRequest``, such as ``session_root`` and ``agent_scope``.

        Raises:
            InvalidArgumentError: An argument is not allowed, or a model is named that ``available_models`` lacks.
        """
        return await asyncio.to_thread(
            preflight_in,
            self.settings,
            self.layout,
            self._finder,
            session_id=self.session_id,
            given={"agent": agent, "task": task, "cwd": cwd, "run_id": run_id, "ceiling": ceiling, **wishes},
        )

    def register_agent(self, name: str, definition: Mapping[str, Any]) -> RuntimeRegistration:
        """Register an agent for what this program launches, until it is disposed of. No file is written.

        Args:
            name: As ``spawn`` takes it; no builtin's, and no other agent's of any directory that is launched in.
            definition: ``description`` and ``systemPrompt``, and what an agent's file may say, under the same names; to
                be run it needs a ``runner``.

        Raises:
            InvalidAgentError: It is no definition, or the name is taken.
        """
        return self._finder.runtime.register(name, definition, builtin=builtin_names())

    def register_ceiling(self, source: str, ceiling: Mapping[str, Any]) -> CeilingHandle:
        """Put a capability ceiling over the session, for as long as this process lives or until it is disposed of.

        It holds for every run that is submitted into the session from now on, by whatever process, and for what such a
        run starts. Several meet by intersection. A run that was launched keeps what held then.

        Args:
            source: Who asks for it, in a word or two.
            ceiling: ``allowedTools`` and ``allowedAgents`` (lists; an empty one allows none), ``denyExtensions``.

        Raises:
            InvalidArgumentError: It is no ceiling.
            RefusedError: This process is a run's.
        """
        return put_ceiling(self.layout, self.session_id, source, ceiling)
