"""``pisub preflight``: what exactly would be launched, and with which digests. Nothing is."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from pisub.agents.discovery import AgentFinder
from pisub.cli.ceilings import read_ceiling
from pisub.cli.console import Console, safe_line
from pisub.cli.exits import Exit
from pisub.cli.schemas import read_schema
from pisub.cli.select import inbox_session, read_value
from pisub.client.launching import preflight_in
from pisub.config import Settings
from pisub.preflight.contract import Accepted, LaunchContract, Refused
from pisub.preflight.tools import Note
from pisub.record.layout import Layout

#: A refusal that is about what was typed, or about what is not there; any other is a rule's.
_CODES: Final = {
    "missing_agent": Exit.NOT_FOUND,
    "missing_skill": Exit.NOT_FOUND,
    "ambiguous_agent": Exit.USAGE,
    "invalid_cwd": Exit.USAGE,
    "unsupported_mode": Exit.USAGE,
    "invalid_artifact_dir": Exit.USAGE,
    "invalid_intercom_bridge": Exit.USAGE,
    "invalid_extension_bindings": Exit.USAGE,
}


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """Resolve a launch and print it, or the first thing that is in the way."""
    cwd = Path.cwd() if arguments.cwd is None else arguments.cwd.expanduser().absolute()
    given: dict[str, Any] = {
        "agent": arguments.agent,
        "task": "" if arguments.task is None else read_value(arguments.task),
        "cwd": cwd,
        "run_id": arguments.run_id,
        "ceiling": read_ceiling(arguments),
        "agent_scope": arguments.scope,
        "context": arguments.context,
        "model": arguments.model,
        "thinking": arguments.thinking,
        "skill": arguments.skill,
        "output": arguments.output,
        "output_schema": None if arguments.schema is None else read_schema(arguments.schema),
    }
    answer = preflight_in(
        settings,
        Layout.of(settings),
        AgentFinder(settings),
        session_id=settings.session or inbox_session(cwd),
        given=given,
    )
    code = Exit.OK if isinstance(answer, Accepted) else _CODES.get(answer.code, Exit.REFUSED)
    if console.is_json:
        console.json("preflight", msgspec.to_builtins(answer))
        return code
    match answer:
        case Accepted(contract=contract):
            console.result("\n".join(f"{name:<16}{safe_line(value)}" for name, value in _lines(contract)))
            _say(console, contract.diagnostics)
        case Refused(code=refused, message=message, diagnostics=diagnostics):
            console.say(f"{console.style('not launched:', 'red')} {refused}: {safe_line(message)}")
            _say(console, [each for each in diagnostics if each.message != message])
    return code


def _lines(contract: LaunchContract) -> Iterable[tuple[str, str]]:
    agent, tools = contract.agent, contract.tools
    yield "agent", f"{agent.name}  ({agent.source}: {agent.file_path})"
    for other in agent.shadowed_candidates:
        yield "  instead of", f"{other.source}: {other.file_path}{' (disabled)' if other.disabled else ''}"
    yield "context", contract.context
    yield "model", ", then ".join(contract.model_candidates) or "its own choice"
    if contract.thinking is not None:
        yield "thinking", contract.thinking
    yield "tools", "not restricted" if tools.effective_allowlist is None else _listed(tools.effective_allowlist)
    if tools.effective_mcp_tools:
        yield "MCP tools", _listed(tools.effective_mcp_tools)
    extensions = tools.configured_extensions
    yield "extensions", "those at hand" if extensions is None else _listed(tools.extension_args)
    yield "may ask you", "yes" if tools.can_ask else "no"
    if contract.skills.requested:
        yield "skills", _listed(f"{each.name} ({each.source})" for each in contract.skills.resolved)
    if contract.roots.output_path is not None:
        yield "output", contract.roots.output_path
    if tools.capability_audit is not None:
        yield "ceiling", tools.capability_audit.summary
    yield "definition", agent.definition_digest
    yield "launch contract", contract.launch_contract_digest
    yield "contract", contract.digest


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _say(console: Console, notes: Iterable[Note]) -> None:
    for note in notes:
        color = "red" if note.severity == "error" else "yellow"
        console.say(f"{console.style(f'{note.severity}:', color)} {safe_line(note.message)}")
