"""Capability ceilings: what the runs of a session may have at most. Pure: no file, no process.

A ceiling is a snapshot. Several meet by intersection, which can only narrow, in whatever order they come. An omitted
list restricts nothing; an empty one allows nothing, and stays empty. What is stored and cannot be read as a ceiling is
an error, never "no ceiling" (contract, delegation 3).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, cast

import msgspec

from pisub.errors import InvalidArgumentError, RefusedError
from pisub.protocol.base import Part
from pisub.protocol.limits import MAX_CEILING_ENTRIES, MAX_CEILING_ENTRY_BYTES, MAX_CEILING_SOURCE_BYTES

#: ``code`` of a launch that a ceiling forbids.
RESTRICTED_AGENT = "restricted_agent"
#: ``code`` of a schedule that cannot be kept while one is active.
CEILING_ACTIVE = "ceiling_active"
#: Entries of ``allowedTools`` that leave a child the right to ask the human, where its agent has it.
ASKING_ENTRIES = frozenset({"ext:checkpoint-bridge", "ask_user_via_host"})

_ENTRY = re.compile(r"[A-Za-z0-9_.:-]+", re.ASCII)
_KEYS = ("allowedTools", "allowedAgents", "denyExtensions")


class CapabilityCeiling(Part, frozen=True, kw_only=True):
    """What is allowed at most. No field that a reader needs has a default: each is always written.

    Attributes:
        allowed_tools: Names, sorted; None allows all, () none.
        allowed_agents: Canonical names of agents, likewise.
        deny_extensions: No ambient, configured or path-like extension, and no MCP provider.
        sources: Who asked for it, sorted.
    """

    version: Literal[1]
    allowed_tools: tuple[str, ...] | None = None
    allowed_agents: tuple[str, ...] | None = None
    deny_extensions: bool
    sources: tuple[str, ...]

    def allows_agent(self, name: str) -> bool:
        """Tell whether the agent of this canonical name may be launched."""
        return self.allowed_agents is None or name in self.allowed_agents

    def allows_tool(self, name: str) -> bool:
        """Tell whether a tool, or an extension's as ``ext:name``, is allowed."""
        return self.allowed_tools is None or name in self.allowed_tools

    @property
    def allows_asking(self) -> bool:
        """Whether a child may ask the human: its extension is not denied, and its tool is allowed."""
        if self.deny_extensions:
            return False
        return self.allowed_tools is None or not ASKING_ENTRIES.isdisjoint(self.allowed_tools)


class CapabilityAudit(Part, frozen=True, kw_only=True):
    """What a ceiling did to one launch, without a path: of extensions only numbers are told.

    Attributes:
        requested_tools: What the agent declares; None where it declares nothing. No path is among them.
        effective_tools: What is left; None where nothing restricts it.
        removed_tools: What was taken away.
        internal_tools: Of our own, which a ceiling does not count: no capability of the caller's.
        removed_extension_count: Extensions and path-like tools that were taken away.
    """

    ceiling: CapabilityCeiling
    requested_tools: tuple[str, ...] | None = None
    effective_tools: tuple[str, ...] | None = None
    exclude_tools: tuple[str, ...] = ()
    removed_tools: tuple[str, ...] = ()
    internal_tools: tuple[str, ...] = ()
    extensions_denied: bool = False
    removed_extension_count: int = 0
    requested_mcp_tool_count: int = 0
    effective_mcp_tools: tuple[str, ...] = ()
    agent_allowed: bool = True
    agent_restriction_sources: tuple[str, ...] = ()
    unavailable_host_builtins: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """How much was taken away and by whom, for people."""
        by = ", ".join(self.ceiling.sources)
        return (
            f"{len(self.removed_tools)} tools removed, {self.removed_extension_count} extension entries removed "
            f"(capability ceiling: {by})"
        )


def check_ceiling(policy: object, source: object) -> CapabilityCeiling:
    """Return the ceiling that a caller's policy means.

    Args:
        policy: A mapping with at least one of ``allowedTools``, ``allowedAgents`` and ``denyExtensions``.
        source: Who asks for it, in a word or two.

    Raises:
        InvalidArgumentError: It is none; ``field`` says where. A key that nobody knows is refused: misspelt, it would
            restrict nothing.
    """
    name = check_source(source)
    if not isinstance(policy, Mapping):
        raise InvalidArgumentError("A ceiling is a mapping, such as {'allowedTools': ['read']}.", field="ceiling")
    given = cast("Mapping[object, object]", policy)
    unknown = [key for key in given if key not in _KEYS]
    if unknown:
        raise InvalidArgumentError(
            f"{str(unknown[0])[:80]!a} is no key of a ceiling; there are {', '.join(_KEYS)}.", field="ceiling"
        )
    if not given:
        raise InvalidArgumentError(f"A ceiling needs at least one of {', '.join(_KEYS)}.", field="ceiling")
    deny = given.get("denyExtensions", False)
    if not isinstance(deny, bool):
        raise InvalidArgumentError("denyExtensions is true or false.", field="denyExtensions")
    return CapabilityCeiling(
        version=1,
        allowed_tools=_entries(given, "allowedTools"),
        allowed_agents=_entries(given, "allowedAgents"),
        deny_extensions=deny,
        sources=(name,),
    )


def check_source(source: object) -> str:
    """Return who asks for a ceiling, trimmed.

    Raises:
        InvalidArgumentError: It is empty, has control characters or is too long.
    """
    text = source.strip() if isinstance(source, str) else ""
    if not text or not text.isprintable() or len(text.encode("utf-8", "replace")) > MAX_CEILING_SOURCE_BYTES:
        raise InvalidArgumentError(
            f"source says who asks for the ceiling: 1 to {MAX_CEILING_SOURCE_BYTES} bytes without control characters.",
            field="source",
        )
    return text


def intersect(ceilings: Iterable[CapabilityCeiling | None]) -> CapabilityCeiling | None:
    """Return what all of them allow; None where there is none, which is something else than one that allows all."""
    found = [each for each in ceilings if each is not None]
    if not found:
        return None
    return CapabilityCeiling(
        version=1,
        allowed_tools=_common(each.allowed_tools for each in found),
        allowed_agents=_common(each.allowed_agents for each in found),
        deny_extensions=any(each.deny_extensions for each in found),
        sources=tuple(sorted({source for each in found for source in each.sources})),
    )


def require_agent(ceiling: CapabilityCeiling | None, name: str) -> None:
    """Pass for an agent that may be launched.

    Args:
        ceiling: What holds, or None.
        name: Its canonical name, not an alias; case counts.

    Raises:
        RefusedError: The ceiling does not allow it (``restricted_agent``).
    """
    if ceiling is not None and not ceiling.allows_agent(name):
        raise RefusedError(refusal(ceiling, name), code=RESTRICTED_AGENT)


def refusal(ceiling: CapabilityCeiling, name: str) -> str:
    """Return why an agent may not be launched, and which may."""
    allowed = ", ".join(ceiling.allowed_agents or ()) or "(none)"
    by = ", ".join(ceiling.sources)
    return f"The capability ceiling ({by}) does not allow agent {name!r}. Allowed agents: {allowed}."


def require_none(ceiling: CapabilityCeiling | None) -> None:
    """Pass where no ceiling is active: what is kept to begin later would begin without it.

    Raises:
        RefusedError: One is active (``ceiling_active``).
    """
    if ceiling is not None:
        raise RefusedError(
            "Cannot persist a schedule while a capability ceiling is active "
            f"({', '.join(ceiling.sources)}): end the ceiling first, or run it now.",
            code=CEILING_ACTIVE,
        )


def parse_stored(value: object) -> CapabilityCeiling:
    """Read a ceiling as it was stored or inherited.

    Raises:
        msgspec.ValidationError: It is none, or of another version. Whoever asks must refuse, not go on without.
    """
    return msgspec.convert(value, CapabilityCeiling)


def _common(lists: Iterable[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    defined = [set(each) for each in lists if each is not None]
    if not defined:
        return None
    common = defined[0]
    for each in defined[1:]:
        common &= each
    return tuple(sorted(common))


def _entries(policy: Mapping[object, object], field: str) -> tuple[str, ...] | None:
    if field not in policy:
        return None
    value = policy[field]
    if not isinstance(value, list | tuple):
        raise InvalidArgumentError(f"{field} is a list of names.", field=field)
    names = cast("list[object] | tuple[object, ...]", value)
    if len(names) > MAX_CEILING_ENTRIES:
        raise InvalidArgumentError(
            f"{field} has {len(names)} entries; at most {MAX_CEILING_ENTRIES} are allowed.", field=field
        )
    found: set[str] = set()
    for each in names:
        text = each.strip() if isinstance(each, str) else ""
        if _ENTRY.fullmatch(text) is None or len(text) > MAX_CEILING_ENTRY_BYTES:
            raise InvalidArgumentError(
                f"{str(each)[:60]!a} cannot stand in {field}: use 1 to {MAX_CEILING_ENTRY_BYTES} of letters, digits, "
                "'_', '.', ':' and '-'.",
                field=field,
            )
        found.add(text)
    return tuple(sorted(found))
