"""``pisub agents``: who can be given a task here."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import msgspec

from pisub.agents.catalog import Catalog
from pisub.agents.definition import AgentDefinition, AgentSource
from pisub.agents.discovery import discover
from pisub.agents.trust import is_trusted
from pisub.cli.console import Console, safe_line
from pisub.cli.exits import Exit
from pisub.cli.render import table
from pisub.cli.trusting import code_agents
from pisub.config import Settings


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """List the agents that are seen from a directory, and what is wrong with files that cannot be used."""
    cwd = Path.cwd() if arguments.cwd is None else arguments.cwd.expanduser().absolute()
    catalog = discover(settings, cwd)
    trusted = not code_agents(catalog) or is_trusted(settings, catalog.project_root)
    if console.is_json:
        console.json("agents", _document(catalog, is_trusted=trusted))
        return Exit.OK
    rows = [
        (
            safe_line(agent.name),
            agent.source.value,
            _kind(agent, is_trusted=trusted),
            safe_line(agent.description, width=70),
        )
        for agent in catalog.agents
    ]
    console.result("\n".join(table(("AGENT", "FROM", "RUNS", "DESCRIPTION"), rows)))
    if not trusted:
        console.say(f"the project's agents run code and are not trusted: pisub trust {catalog.project_root}")
    for diagnostic in catalog.diagnostics:
        console.say(f"{console.style('warning:', 'yellow')} {safe_line(diagnostic.message)}")
    return Exit.OK


def _kind(agent: AgentDefinition, *, is_trusted: bool) -> str:
    if agent.runner is None:
        return "no runner"
    is_held_back = agent.source is AgentSource.PROJECT and not is_trusted
    return f"{agent.runner.type} (untrusted)" if is_held_back else agent.runner.type


def _document(catalog: Catalog, *, is_trusted: bool) -> dict[str, object]:
    return {
        "projectRoot": str(catalog.project_root),
        "isTrusted": is_trusted,
        "agents": [
            {
                "name": agent.name,
                "description": agent.description,
                "source": agent.source.value,
                "file": str(agent.file),
                "runner": None if agent.runner is None else agent.runner.type,
                "canAsk": agent.can_ask,
            }
            for agent in catalog.agents
        ],
        "diagnostics": msgspec.to_builtins(catalog.diagnostics),
    }
