"""``pisub agents``: who can be given a task here, where each comes from, and what it shadows."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import msgspec

from pisub.agents.catalog import Catalog
from pisub.agents.definition import AgentDefinition, AgentSource
from pisub.agents.discovery import AgentFinder
from pisub.agents.trust import is_trusted
from pisub.cli.console import Console, safe_line
from pisub.cli.exits import Exit
from pisub.cli.render import table
from pisub.cli.select import inbox_session
from pisub.cli.trusting import code_agents
from pisub.config import Settings
from pisub.record.ceilings import active_ceiling
from pisub.record.layout import Layout
from pisub.runs.ceilings import CapabilityCeiling

#: What drives an agent that is a prompt: there is no such engine in this installation.
NO_ENGINE = "(needs a model engine)"


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """List the agents that are seen from a directory, and what is wrong with files that cannot be used."""
    cwd = Path.cwd() if arguments.cwd is None else arguments.cwd.expanduser().absolute()
    catalog = AgentFinder(settings).find(cwd, scope=arguments.scope)
    ceiling = active_ceiling(Layout.of(settings), settings.session or inbox_session(cwd))
    trusted = not code_agents(catalog) or is_trusted(settings, catalog.project_root)
    if console.is_json:
        console.json("agents", _document(catalog, ceiling, is_trusted=trusted))
        return Exit.OK
    free = [each for each in catalog.agents if ceiling is None or ceiling.allows_agent(each.name)]
    console.result(_table(free, is_trusted=trusted))
    restricted = [each for each in catalog.agents if each not in free]
    if restricted and ceiling is not None:
        sources = ", ".join(ceiling.sources)
        console.result(
            f"\nRestricted agents (not executable in this session; capability ceiling: {safe_line(sources)})\n"
            + _table(restricted, is_trusted=trusted)
        )
    _explain(console, catalog)
    if not trusted:
        console.say(f"the project's agents run code and are not trusted: pisub trust {catalog.project_root}")
    for diagnostic in catalog.diagnostics:
        console.say(f"{console.style('warning:', 'yellow')} {safe_line(diagnostic.message)}")
    return Exit.OK


def _table(agents: list[AgentDefinition], *, is_trusted: bool) -> str:
    rows = [
        (
            safe_line(agent.name),
            agent.source.value,
            _kind(agent, is_trusted=is_trusted),
            safe_line(agent.description, width=70),
        )
        for agent in agents
    ]
    return "\n".join(table(("AGENT", "FROM", "RUNS", "DESCRIPTION"), rows))


def _explain(console: Console, catalog: Catalog) -> None:
    """Say which files are used instead of which, what is disabled, and what no engine runs."""
    for agent in catalog.agents:
        others = catalog.shadowed_by(agent)
        if others:
            shown = ", ".join(f"{each.source.value} ({each.file})" for each in others)
            console.say(safe_line(f"{agent.name} is the {agent.source.value}'s ({agent.file}), instead of {shown}"))
    disabled = sorted({each.name for each in catalog.shadowed if each.is_disabled})
    if disabled:
        console.say(safe_line(f"disabled in config.toml: {', '.join(disabled)}"))
    prompts = [each.name for each in catalog.agents if each.runner is None]
    if prompts:
        console.say(
            safe_line(
                f"{', '.join(prompts)}: prompts that need a model engine, and none is configured. To have a program "
                f'run one, put  [agents.{prompts[0]}]  runner = {{type = "external-cli", argv = ["PROGRAM"]}}  into '
                "config.toml: it reads prompt and task on standard input."
            )
        )


def _kind(agent: AgentDefinition, *, is_trusted: bool) -> str:
    if agent.runner is None:
        return NO_ENGINE
    is_held_back = agent.source is AgentSource.PROJECT and not is_trusted
    return f"{agent.runner.type} (untrusted)" if is_held_back else agent.runner.type


def _document(catalog: Catalog, ceiling: CapabilityCeiling | None, *, is_trusted: bool) -> dict[str, object]:
    return {
        "projectRoot": str(catalog.project_root),
        "isTrusted": is_trusted,
        "agents": [
            {
                "name": agent.name,
                "localName": agent.short_name,
                "packageName": agent.package or None,
                "aliases": list(agent.aliases),
                "description": agent.description,
                "source": agent.source.value,
                "file": str(agent.file),
                "runner": None if agent.runner is None else agent.runner.type,
                "needsEngine": agent.runner is None,
                "canAsk": agent.can_ask,
                "isRestricted": ceiling is not None and not ceiling.allows_agent(agent.name),
                "shadows": [
                    {"source": each.source.value, "file": str(each.file)} for each in catalog.shadowed_by(agent)
                ],
            }
            for agent in catalog.agents
        ],
        "disabled": sorted({each.name for each in catalog.shadowed if each.is_disabled}),
        "ceiling": None if ceiling is None else msgspec.to_builtins(ceiling),
        "diagnostics": msgspec.to_builtins(catalog.diagnostics),
    }
