"""The options that forbid things, as ``run``, ``host`` and ``preflight`` take them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any


def declare_ceiling(parser: ArgumentParser, whose: str) -> None:
    """Declare the options."""
    group = parser.add_argument_group("capability ceiling", f"what {whose}, and what they start, may have at most")
    group.add_argument("--allow-tools", metavar="LIST", help="tools, separated by commas; '' allows none")
    group.add_argument("--allow-agents", metavar="LIST", help="agents, by their whole names; '' allows none")
    group.add_argument("--deny-extensions", action="store_true", help="no extension, and no question to you")


def read_ceiling(arguments: Namespace) -> dict[str, Any] | None:
    """Return what the options forbid; None where none was given."""
    found: dict[str, Any] = {}
    if arguments.allow_tools is not None:
        found["allowedTools"] = _names(arguments.allow_tools)
    if arguments.allow_agents is not None:
        found["allowedAgents"] = _names(arguments.allow_agents)
    if arguments.deny_extensions:
        found["denyExtensions"] = True
    return found or None


def _names(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
