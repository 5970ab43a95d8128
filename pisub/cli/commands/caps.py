"""``pisub caps``: what a session may start, what it has started, and more of it."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import msgspec

from pisub.cli.console import Console
from pisub.cli.exits import Exit
from pisub.cli.render import moment
from pisub.cli.select import inbox_session
from pisub.client.caller import require_person
from pisub.clock import SystemClock
from pisub.config import Settings
from pisub.process import own_identity
from pisub.record.caps import count_active, grant_spawns, session_budget
from pisub.record.layout import Layout


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """Show a session's caps; with ``--grant`` let it start more runs first."""
    layout = Layout.of(settings)
    session_id = settings.session or inbox_session(Path.cwd())
    if arguments.grant is not None:
        require_person(layout, "grant runs to a session")
        layout.prepare()
        grant_spawns(layout, session_id, arguments.grant, now_ms=SystemClock().wall_ms(), by=own_identity())
    budget = session_budget(layout, session_id)
    active = count_active(layout, session_id)
    if console.is_json:
        document: dict[str, Any] = {
            "sessionId": session_id,
            "maxSubagentSpawnsPerSession": msgspec.to_builtins(budget),
            "maxActiveAsyncRunsPerSession": {
                "used": active,
                "limit": settings.max_active_async_runs_per_session or None,
            },
        }
        console.json("caps", document)
        return Exit.OK
    console.result(f"session       {session_id}")
    console.result(f"runs started  {budget.used} of {_limit(budget.limit)}")
    console.result(f"active runs   {active} of {_limit(settings.max_active_async_runs_per_session or None)}")
    for each in budget.grants:
        console.result(f"granted       {each.amount} at {moment(each.granted_at)}")
    return Exit.OK


def _limit(limit: int | None) -> str:
    return "any number" if limit is None else str(limit)
