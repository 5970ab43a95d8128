"""Agents that a program registers while it runs: no file, nobody else's, gone with the program.

A definition is strict where a file is lenient: an unknown field, a padded text or a comma list is an error, because
a program can be mended at once. Names collide with nothing: see ``catalog.check_runtime`` for files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

from pisub.agents import frontmatter
from pisub.agents.catalog import keys_of
from pisub.agents.definition import AgentDefinition, AgentSource
from pisub.agents.frontmatter import FrontmatterError
from pisub.agents.keys import MAX_TEXT_CHARS, Keys
from pisub.agents.parsing import build_agent
from pisub.errors import InvalidAgentError

#: Agents of one program (contract, delegation 5.2), and the longest of its texts.
MAX_RUNTIME_AGENTS: Final = 200
MAX_DESCRIPTION_CHARS: Final = 4_096
MAX_PROMPT_CHARS: Final = 1024 * 1024
#: A field of a definition, and the key of a file that means the same.
_FIELDS: Final[dict[str, str]] = {
    "description": "description", "aliases": "aliases", "tools": "tools", "excludeTools": "excludeTools",
    "allowNestedSubagents": "allowNestedSubagents", "model": "model", "fallbackModels": "fallbackModels",
    "thinking": "thinking", "systemPromptMode": "systemPromptMode", "inheritProjectContext": "inheritProjectContext",
    "inheritGlobalContext": "inheritGlobalContext", "inheritSkills": "inheritSkills",
    "defaultContext": "defaultContext", "defaultAsync": "async", "defaultTimeoutMs": "timeoutMs",
    "defaultToolTimeoutMs": "toolTimeoutMs", "defaultAcceptance": "acceptance", "acceptanceRole": "acceptanceRole",
    "runner": "runner", "skills": "skills", "skillPath": "skillPath", "extensions": "extensions",
    "subagentOnlyExtensions": "subagentOnlyExtensions", "mutationTools": "mutationTools", "output": "output",
    "outputMode": "outputMode", "defaultReads": "defaultReads", "defaultProgress": "defaultProgress",
    "interactive": "interactive", "maxSubagentDepth": "maxSubagentDepth", "completionGuard": "completionGuard",
    "toolBudget": "toolBudget", "permissions": "permissions",
}  # fmt: skip
_LISTS: Final = frozenset(
    {"aliases", "tools", "excludeTools", "fallbackModels", "skills", "skillPath", "extensions",
     "subagentOnlyExtensions", "mutationTools", "defaultReads", "mcpDirectTools"}
)  # fmt: skip


class RuntimeAgents:
    """The agents of one program."""

    def __init__(self) -> None:
        self._agents: dict[str, AgentDefinition] = {}

    @property
    def agents(self) -> tuple[AgentDefinition, ...]:
        """All of them, in the order of registration."""
        return tuple(self._agents.values())

    def register(self, name: str, definition: Mapping[str, object], *, builtin: frozenset[str]) -> RuntimeRegistration:
        """Add an agent.

        Args:
            name: As ``pisub run`` would take it.
            definition: Fields by name; ``description`` and ``systemPrompt`` must be there.
            builtin: Names that nobody may take.

        Raises:
            InvalidAgentError: It is no definition, its name is taken, or there are too many. Nothing was added.
        """
        agent = runtime_agent(name, definition)
        taken = builtin & set(keys_of(agent))
        if taken:
            raise InvalidAgentError(f"Agent {name!r} collides with the builtin agent {min(taken)!r}.", field="name")
        for other in self._agents.values():
            common = [key for key in keys_of(agent) if key in keys_of(other)]
            if common:
                raise InvalidAgentError(
                    f"Agent {name!r} collides with runtime agent {other.name!r}: both have the name {common[0]!r}.",
                    field="name",
                )
        if len(self._agents) >= MAX_RUNTIME_AGENTS:
            raise InvalidAgentError(f"A program may register {MAX_RUNTIME_AGENTS} agents.", field="name")
        self._agents[agent.name] = agent
        return RuntimeRegistration(self._agents, agent)

    def clear(self) -> None:
        """Take all of them back."""
        self._agents.clear()


class RuntimeRegistration:
    """One agent's registration."""

    def __init__(self, agents: dict[str, AgentDefinition], agent: AgentDefinition) -> None:
        self._agents = agents
        self.agent = agent

    def dispose(self) -> None:
        """Take the agent back; a later one of its name stays. Idempotent."""
        if self._agents.get(self.agent.name) is self.agent:
            del self._agents[self.agent.name]


def runtime_agent(name: object, definition: object) -> AgentDefinition:
    """Return the agent that a definition describes.

    Raises:
        InvalidAgentError: It is none; ``field`` says where.
    """
    if not isinstance(name, str) or not 1 <= len(name) <= 128 or name != name.strip() or "\0" in name:
        raise InvalidAgentError("An agent's name has 1 to 128 characters, no space around it and no NUL.", field="name")
    if not isinstance(definition, Mapping):
        raise InvalidAgentError(f"Agent {name!r}: definition must be an object.", field="definition")
    given = cast("Mapping[str, object]", definition)
    unknown = sorted(str(key) for key in given if key not in _FIELDS and key not in ("systemPrompt", "mcpDirectTools"))
    if unknown:
        raise InvalidAgentError(f"Agent {name!r}: unknown fields: {', '.join(unknown)}.", field=unknown[0])
    for field in ("description", "systemPrompt"):
        if field not in given:
            raise InvalidAgentError(f"Agent {name!r}: {field} is missing.", field=field)
    for field, value in given.items():
        _check(name, field, value)
    depth = given.get("maxSubagentDepth")
    if depth == 0:
        raise InvalidAgentError(f"Agent {name!r}: maxSubagentDepth must be 1 or more.", field="maxSubagentDepth")
    prompt = str(given["systemPrompt"])
    values = {_FIELDS[key]: value for key, value in given.items() if key in _FIELDS}
    direct = given.get("mcpDirectTools")
    if direct is not None:
        mcp = [f"mcp:{each}" for each in cast("list[str]", direct)]
        values["tools"] = [*cast("list[str]", values.get("tools", [])), *mcp]
    try:
        block = frontmatter.as_node({"name": name, **values}, 0)
        assert isinstance(block, frontmatter.Mapping)
        return build_agent(
            Keys(block), prompt, file=Path(f"runtime:{name}"), source=AgentSource.RUNTIME, project_root=None
        )
    except FrontmatterError as error:
        raise InvalidAgentError(f"Agent {name!r}: {error.field}: {error.what}.", field=error.field) from error


def _check(name: str, field: str, value: object) -> None:
    longest = {"description": MAX_DESCRIPTION_CHARS, "systemPrompt": MAX_PROMPT_CHARS}.get(field, MAX_TEXT_CHARS)
    if field in _LISTS and not isinstance(value, list | tuple):
        raise InvalidAgentError(f"Agent {name!r}: {field} must be a list of texts.", field=field)
    texts = cast("list[object]", value) if field in _LISTS else [value] if isinstance(value, str) else []
    for text in texts:
        is_sound = isinstance(text, str) and 1 <= len(text) <= longest and text == text.strip()
        if not is_sound:
            raise InvalidAgentError(
                f"Agent {name!r}: {field} must be text of 1 to {longest} characters without space around it.",
                field=field,
            )
