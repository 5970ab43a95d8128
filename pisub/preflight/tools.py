"""Which tools and extensions a child gets: what its agent declares, and the launch needs, less what is taken away.

Pure. The order (contract, delegation 3 and 5.5): what is declared; the bridge's tool, where tools are declared; what
skills need; what the host does not have; the ceiling; what is excluded; and last the tools of our own, which no ceiling
counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from pisub.agents.definition import ASKING_TOOL, AgentDefinition, may_ask
from pisub.preflight.bridge import TOOL as SUPERVISOR_TOOL
from pisub.protocol.base import Part
from pisub.runs.ceilings import ASKING_ENTRIES, CapabilityAudit, CapabilityCeiling

BUILTIN_TOOLS: Final = ("read", "grep", "find", "ls", "bash", "edit", "write")
#: Those with which a child can change something.
MUTATING_TOOLS: Final = frozenset({"bash", "edit", "write"})
#: How the tools are called in files that were written for another program.
OTHER_NAMES: Final = {
    "Read": "read", "Grep": "grep", "Glob": "find", "LS": "ls", "Bash": "bash", "Edit": "edit", "Write": "write",
}  # fmt: skip
SUBAGENT_TOOL: Final = "subagent"
STRUCTURED_OUTPUT: Final = "structured_output"
_SUPERVISING: Final = "subagent_supervisor"
#: Tools of pisub's that are no builtins of a model's loop.
_OWN_TOOLS: Final = frozenset(
    {ASKING_TOOL, SUPERVISOR_TOOL, SUBAGENT_TOOL, _SUPERVISING, STRUCTURED_OUTPUT, "bg_wait", "intercom"}
)
_SOURCE_SUFFIXES = (".py", ".ts", ".js")


class Note(Part, frozen=True, kw_only=True):
    """One diagnostic: ``severity`` is ``error``, ``warning`` or ``host-required``."""

    code: str
    severity: str
    message: str


class DeniedToolError(Exception):
    """The launch needs a tool that it cannot have; the sentence says which and why."""


class ToolSelectors(msgspec.Struct, frozen=True, kw_only=True):
    """The entries of ``tools``, apart."""

    names: tuple[str, ...] = ()
    is_everything: bool = False
    extension: tuple[str, ...] = ()
    mcp: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


class ToolPlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``tools`` of a contract. None is "not restricted", () is "none".

    Attributes:
        requested_builtin: What the agent declares, without MCP entries and paths.
        declared_builtin: The builtin tools among them.
        effective_allowlist: What the child may call.
        required_child_tools: Without one of these there is no launch.
        extension_selectors: ``ext:`` entries; where there are any, no other extension's tool is shown.
        configured_extensions: As the agent lists them; None is what the host has at hand.
        extension_args: All that is loaded, in order.
    """

    requested_builtin: tuple[str, ...] | None
    declared_builtin: tuple[str, ...]
    exclude_tools: tuple[str, ...]
    effective_allowlist: tuple[str, ...] | None
    explicit_allowlist: bool
    required_child_tools: tuple[str, ...]
    internal_tools: tuple[str, ...]
    extension_selectors: tuple[str, ...]
    mcp: tuple[str, ...]
    effective_mcp_tools: tuple[str, ...]
    tool_extension_paths: tuple[str, ...]
    runtime_extensions: tuple[str, ...]
    configured_extensions: tuple[str, ...] | None
    extension_args: tuple[str, ...]
    disable_ambient_extensions: bool
    fanout_authorized: bool
    can_ask: bool
    capability_ceiling: CapabilityCeiling | None = None
    capability_audit: CapabilityAudit | None = None


def split_tools(tools: Sequence[str] | None) -> ToolSelectors | None:
    """Sort the entries of ``tools`` by what they are; None stays None."""
    if tools is None:
        return None
    names: dict[str, None] = {}
    extension: list[str] = []
    mcp: list[str] = []
    paths: list[str] = []
    is_everything = False
    for entry in tools:
        if entry in ("*", "all"):
            is_everything = True
            names.update(dict.fromkeys(BUILTIN_TOOLS))
        elif entry.startswith("ext:"):
            extension.append(entry)
        elif entry.startswith("mcp:"):
            mcp.append(entry)
        elif "/" in entry or entry.endswith(_SOURCE_SUFFIXES):
            paths.append(entry)
        else:
            names[OTHER_NAMES.get(entry, entry)] = None
    return ToolSelectors(
        names=tuple(names), is_everything=is_everything, extension=tuple(extension), mcp=tuple(mcp), paths=tuple(paths)
    )


def plan_tools(
    agent: AgentDefinition,
    *,
    ceiling: CapabilityCeiling | None = None,
    needs_skills: bool = False,
    has_schema: bool = False,
    is_bridge_active: bool = False,
    is_foreground: bool = False,
    host_builtins: Sequence[str] | None = None,
    host_mcp: Sequence[str] | None = None,
) -> tuple[ToolPlan, tuple[Note, ...]]:
    """Return what a child gets, and what is odd about it.

    Args:
        agent: Who is launched.
        ceiling: What holds at most.
        needs_skills: Whether skills were asked for: then the child must be able to read them.
        has_schema: Whether it is to return a structured result.
        is_bridge_active: Whether it is told of its supervisor.
        is_foreground: A foreground child never loads what lies around.
        host_builtins: The builtin tools that the host has; None is all.
        host_mcp: The MCP selectors that the host can resolve; None where nobody knows.

    Raises:
        DeniedToolError: The launch needs what it cannot have.
    """
    selectors = split_tools(agent.tools)
    declared = selectors or ToolSelectors()
    requested = None if selectors is None else _with_bridge(selectors.names, is_bridge_active, agent)
    missing = tuple(each for each in BUILTIN_TOOLS if host_builtins is not None and each not in host_builtins)
    internal = (STRUCTURED_OUTPUT,) if has_schema else ()
    required = ("read",) if needs_skills else ()
    allowed = _allowed(requested, required, ceiling)
    effective = (
        None
        if allowed is None
        else tuple(each for each in allowed if each not in missing and each not in agent.exclude_tools)
    )
    _require(required, agent, ceiling, missing)
    if has_schema and STRUCTURED_OUTPUT in agent.exclude_tools:
        raise DeniedToolError(f"Agent {agent.name!r} excludes {STRUCTURED_OUTPUT}, which a structured result needs.")
    effective_mcp = _mcp(declared.mcp, agent, ceiling, host_mcp)
    is_denied = ceiling is not None and ceiling.deny_extensions
    fanout = _may_fan_out(agent, effective, ceiling)
    if effective is not None and _SUPERVISING in effective and not fanout:
        raise DeniedToolError(
            f"Agent {agent.name!r} asks for {_SUPERVISING} and may start no agents: give it {SUBAGENT_TOOL} too."
        )
    _require_mutation(agent, effective, effective_mcp, ceiling)
    extensions = _Extensions(agent, declared.paths, is_denied=is_denied, is_foreground=is_foreground)
    selected = () if is_denied else tuple(each for each in declared.extension if _allows_selector(each, ceiling))
    with_internal = effective if effective is None or not internal else (*effective, *internal)
    audit = None
    if ceiling is not None:
        taken = [each for each in requested or () if not ceiling.allows_tool(each)]
        taken += [each for each in declared.extension if each not in selected]
        audit = CapabilityAudit(
            ceiling=ceiling,
            requested_tools=requested,
            effective_tools=with_internal,
            exclude_tools=agent.exclude_tools,
            removed_tools=tuple(taken),
            internal_tools=internal,
            extensions_denied=is_denied,
            removed_extension_count=extensions.removed,
            requested_mcp_tool_count=len(declared.mcp),
            effective_mcp_tools=effective_mcp,
            agent_allowed=ceiling.allows_agent(agent.name),
            agent_restriction_sources=() if ceiling.allowed_agents is None else ceiling.sources,
            unavailable_host_builtins=missing,
        )
    plan = ToolPlan(
        requested_builtin=None if selectors is None else selectors.names,
        declared_builtin=tuple(each for each in declared.names if each in BUILTIN_TOOLS),
        exclude_tools=agent.exclude_tools,
        effective_allowlist=with_internal,
        explicit_allowlist=effective is not None,
        required_child_tools=(*required, *internal),
        internal_tools=internal,
        extension_selectors=selected,
        mcp=declared.mcp,
        effective_mcp_tools=effective_mcp,
        tool_extension_paths=extensions.tool_paths,
        runtime_extensions=(),
        configured_extensions=extensions.configured,
        extension_args=extensions.loaded,
        disable_ambient_extensions=extensions.without_ambient,
        fanout_authorized=fanout,
        can_ask=may_ask(agent.can_ask, ceiling is None or ceiling.allows_asking),
        capability_ceiling=ceiling,
        capability_audit=audit,
    )
    return plan, tuple(_notes(agent, declared))


def _with_bridge(names: tuple[str, ...], is_active: bool, agent: AgentDefinition) -> tuple[str, ...]:
    """Add the bridge's tool to a list that is not empty: one that grants nothing, or MCP tools only, is not widened."""
    if not is_active or not names or SUPERVISOR_TOOL in names or SUPERVISOR_TOOL in agent.exclude_tools:
        return names
    return (*names, SUPERVISOR_TOOL)


def _allowed(
    requested: tuple[str, ...] | None, required: tuple[str, ...], ceiling: CapabilityCeiling | None
) -> tuple[str, ...] | None:
    if requested is None:
        # Nothing is declared: the ceiling's list is the child's, and none of it is required.
        return None if ceiling is None else ceiling.allowed_tools
    wanted = tuple(dict.fromkeys((*requested, *required)))
    return wanted if ceiling is None else tuple(each for each in wanted if ceiling.allows_tool(each))


def _require(
    required: Sequence[str], agent: AgentDefinition, ceiling: CapabilityCeiling | None, missing: Sequence[str]
) -> None:
    for tool in required:
        if ceiling is not None and not ceiling.allows_tool(tool):
            why = f"the capability ceiling ({', '.join(ceiling.sources)}) does not allow it"
        elif tool in agent.exclude_tools:
            why = "the agent excludes it"
        elif tool in missing:
            why = "the host does not have it"
        else:
            continue
        raise DeniedToolError(f"The skills of agent {agent.name!r} need the tool {tool!r}, and {why}.")


def _mcp(
    selectors: tuple[str, ...], agent: AgentDefinition, ceiling: CapabilityCeiling | None, known: Sequence[str] | None
) -> tuple[str, ...]:
    if known is not None:
        unresolved = [each for each in selectors if each not in known]
        if unresolved:
            raise DeniedToolError(
                f"Agent {agent.name!r} names MCP tools that nothing resolves: {', '.join(unresolved)}."
            )
    if ceiling is None:
        return selectors
    if ceiling.deny_extensions:
        return ()
    return tuple(each for each in selectors if _allows_selector(each, ceiling))


def _allows_selector(selector: str, ceiling: CapabilityCeiling | None) -> bool:
    """Tell whether ``ext:a/b`` or ``mcp:a/b`` is allowed: as ``ext:a``, or by the tool's own name."""
    if ceiling is None or ceiling.allowed_tools is None:
        return True
    provider, _, tool = selector.partition("/")
    if provider.lower() == "ext:checkpoint-bridge":
        return not ASKING_ENTRIES.isdisjoint(ceiling.allowed_tools)
    return provider in ceiling.allowed_tools or (bool(tool) and tool in ceiling.allowed_tools)


def _may_fan_out(agent: AgentDefinition, effective: tuple[str, ...] | None, ceiling: CapabilityCeiling | None) -> bool:
    if agent.allow_nested_subagents is False or SUBAGENT_TOOL in agent.exclude_tools:
        return False
    if ceiling is not None and not ceiling.allows_tool(SUBAGENT_TOOL):
        return False
    return effective is None or agent.allow_nested_subagents is True or SUBAGENT_TOOL in effective


def _require_mutation(
    agent: AgentDefinition, effective: tuple[str, ...] | None, mcp: tuple[str, ...], ceiling: CapabilityCeiling | None
) -> None:
    """Refuse who is to change something and could only look (contract, delegation 4.8)."""
    if agent.acceptance_role != "writer" or agent.completion_guard is False or effective is None or mcp:
        return
    if not (MUTATING_TOOLS | set(agent.mutation_tools)).isdisjoint(effective):
        return
    by = "" if ceiling is None else f" under the capability ceiling ({', '.join(ceiling.sources)})"
    raise DeniedToolError(
        f"Agent {agent.name!r} is there to change something, and has no tool left that can{by}: "
        f"{', '.join(effective) or 'no tool at all'}."
    )


class _Extensions:
    """What is loaded beside the builtin tools. A denial takes everything but the hooks of our own."""

    def __init__(self, agent: AgentDefinition, paths: tuple[str, ...], *, is_denied: bool, is_foreground: bool) -> None:
        excluded = {each.lower() for each in agent.exclude_extensions}
        listed = None if agent.extensions is None else tuple(e for e in agent.extensions if e.lower() not in excluded)
        own = tuple(each for each in agent.subagent_only_extensions if each.lower() not in excluded)
        self.removed = len(listed or ()) + len(own) + len(paths) if is_denied else 0
        self.tool_paths = () if is_denied else paths
        self.configured = () if is_denied else listed
        loaded = (*(self.configured or ()), *(() if is_denied else own), *self.tool_paths)
        self.loaded = tuple(dict.fromkeys(loaded))
        self.without_ambient = is_denied or is_foreground or listed is not None


def _notes(agent: AgentDefinition, declared: ToolSelectors) -> list[Note]:
    notes: list[Note] = []
    loaded = {each.lower() for each in (*(agent.extensions or ()), *agent.subagent_only_extensions)}
    if agent.extensions == ():
        notes.append(
            Note(
                code="extension-error",
                severity="warning",
                message="extensions is empty: none is loaded, also no ambient one.",
            )
        )
    for selector in declared.extension:
        name = selector.removeprefix("ext:").partition("/")[0]
        if name.lower() not in loaded and "*" not in loaded:
            message = f"tools has {selector}, and extensions does not load {name}: it grants nothing."
            notes.append(Note(code="extension-error", severity="warning", message=message))
    known = {*BUILTIN_TOOLS, *_OWN_TOOLS, *agent.mutation_tools, "none"}
    unknown = [each for each in declared.names if each not in known]
    if unknown:
        message = f"tools has names that no tool of pisub's has: {', '.join(unknown)}."
        notes.append(Note(code="tools-error", severity="warning", message=message))
    return notes
