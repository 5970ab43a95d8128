"""Showing what a project's agents would run, and asking once whether they may."""

from __future__ import annotations

from pathlib import Path

from pisub.agents.catalog import Catalog
from pisub.agents.definition import AgentDefinition, AgentSource
from pisub.agents.discovery import discover
from pisub.agents.trust import agents_digest, require_trust, trust
from pisub.cli.console import Console, safe_line
from pisub.config import Settings
from pisub.errors import UntrustedProjectError


def code_agents(catalog: Catalog) -> list[AgentDefinition]:
    """Return the project's agents that run code."""
    return [agent for agent in catalog.agents if agent.source is AgentSource.PROJECT and agent.runs_code]


def what_runs(agent: AgentDefinition) -> str:
    """Return in one line what a run of an agent starts."""
    runner = agent.runner
    if runner is None:
        return "nothing (a prompt only)"
    return safe_line(f"{runner.type}: {runner.target or ' '.join(runner.argv)}")


def look_at_project(settings: Settings, directory: Path) -> tuple[Catalog, str]:
    """Return what there is to show of a directory's project, and the digest that a yes to it is about.

    The digest is taken first: whatever changes after it is not what the yes was about.

    Raises:
        UntrustedProjectError: The project's agents folders cannot be read whole.
    """
    digest = agents_digest(discover(settings, directory).project_root)
    return discover(settings, directory), digest


def show_project(console: Console, catalog: Catalog) -> None:
    """Say what trusting a project means."""
    agents = code_agents(catalog)
    console.say(f"project {catalog.project_root}")
    for agent in agents:
        console.say(f"  {safe_line(agent.name)}  {what_runs(agent)}  ({agent.file})")
    if not agents:
        console.say("  no agents that run code")


def require_trusted(settings: Settings, console: Console, name: str, cwd: Path) -> None:
    """Pass for an agent that may run. On a terminal, an untrusted project is asked about once.

    Raises:
        UnknownAgentError: There is no such agent.
        UntrustedProjectError: It may not run, and nobody said yes.
    """
    catalog = discover(settings, cwd)
    definition = catalog.get(name)
    for lower in catalog.shadowed_by(definition):
        if definition.source is AgentSource.PROJECT and lower.source is AgentSource.BUILTIN:
            console.say(f"note: this project's agent {safe_line(definition.name)} replaces the builtin one")
    try:
        require_trust(settings, definition)
    except UntrustedProjectError:
        if not console.is_interactive:
            raise
        catalog, shown = look_at_project(settings, cwd)
        show_project(console, catalog)
        if not console.confirm("Trust the agents of this project, and the code that they name?"):
            raise
        trust(settings, catalog.project_root, shown=shown)
