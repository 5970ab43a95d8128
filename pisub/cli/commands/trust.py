"""``pisub trust``: let a project's agents run code. It shows them first."""

from __future__ import annotations

from argparse import Namespace

from pisub.agents.trust import is_trusted, trust
from pisub.cli.console import Console
from pisub.cli.exits import Exit
from pisub.cli.trusting import code_agents, look_at_project, show_project, what_runs
from pisub.client.caller import require_person
from pisub.config import Settings
from pisub.errors import InvalidArgumentError
from pisub.record.layout import Layout


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """Record that the project of a directory is trusted as it is now."""
    directory = arguments.directory.expanduser().absolute()
    if not directory.is_dir():
        raise InvalidArgumentError(f"{directory} is not a directory.", field="directory")
    require_person(Layout.of(settings), "trust a project")
    catalog, shown = look_at_project(settings, directory)
    show_project(console, catalog)
    if is_trusted(settings, catalog.project_root):
        console.say("it is trusted already")
    elif not arguments.yes:
        if not console.is_interactive:
            raise InvalidArgumentError(
                "There is no terminal to ask in: look at the agents, then use --yes.", field="yes"
            )
        if not console.confirm("Trust these agents, and the code that they name?"):
            console.say("not trusted; nothing was changed")
            return Exit.UNTRUSTED
    record = trust(settings, catalog.project_root, shown=shown)
    if console.is_json:
        agents = [{"name": agent.name, "runs": what_runs(agent)} for agent in code_agents(catalog)]
        console.json("trusted", {"root": record.root, "digest": record.digest, "agents": agents})
    else:
        console.result(f"trusted: {record.root}")
    return Exit.OK
