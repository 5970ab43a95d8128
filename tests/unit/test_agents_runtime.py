"""Agents that a program registers while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pisub.agents.definition import AgentDefinition, AgentSource
from pisub.agents.discovery import builtin_names
from pisub.agents.runtime import MAX_RUNTIME_AGENTS, RuntimeAgents, runtime_agent
from pisub.errors import InvalidAgentError

SOUND: dict[str, Any] = {"description": "d", "systemPrompt": "p"}


def register(agents: RuntimeAgents, name: str, **fields: Any) -> Any:
    return agents.register(name, SOUND | fields, builtin=builtin_names())


def test_a_definition_becomes_an_agent_with_the_defaults_of_a_file() -> None:
    fields = {"tools": [], "mcpDirectTools": ["x/y"], "defaultTimeoutMs": 5, "thinking": False, "defaultAsync": True}
    assert runtime_agent("probe", SOUND | fields) == AgentDefinition(
        name="probe",
        description="d",
        source=AgentSource.RUNTIME,
        file=Path("runtime:probe"),
        system_prompt="p",
        tools=("mcp:x/y",),
        timeout_ms=5,
        thinking="off",
        default_async=True,
    )
    assert runtime_agent("probe", SOUND | {"tools": []}).tools == ()


@pytest.mark.parametrize(
    ("name", "definition", "field"),
    [
        ("", SOUND, "name"),
        (" a", SOUND, "name"),
        ("a" * 129, SOUND, "name"),
        ("a\0", SOUND, "name"),
        ("a b", SOUND, "name"),
        ("a", None, "definition"),
        ("a", {"description": "d"}, "systemPrompt"),
        ("a", {"systemPrompt": "p"}, "description"),
        ("a", SOUND | {"turns": 1, "acts": 2}, "acts"),
        ("a", SOUND | {"description": " d"}, "description"),
        ("a", SOUND | {"description": "d" * 4097}, "description"),
        ("a", SOUND | {"model": ""}, "model"),
        ("a", SOUND | {"model": "m" * 8193}, "model"),
        ("a", SOUND | {"systemPrompt": "p" * (1024 * 1024 + 1)}, "systemPrompt"),
        ("a", SOUND | {"tools": "read, write"}, "tools"),
        ("a", SOUND | {"tools": ["read "]}, "tools"),
        ("a", SOUND | {"tools": [1]}, "tools"),
        ("a", SOUND | {"maxSubagentDepth": 0}, "maxSubagentDepth"),
        ("a", SOUND | {"toolBudget": {"hard": 0, "block": "*"}}, "toolBudget"),
        ("a", SOUND | {"thinking": "much"}, "thinking"),
        ("a", SOUND | {"runner": {"type": "x"}}, "runner.type"),
    ],
)
def test_what_is_no_definition_is_refused_by_its_field(name: str, definition: Any, field: str) -> None:
    agents = RuntimeAgents()
    with pytest.raises(InvalidAgentError) as caught:
        agents.register(name, definition, builtin=builtin_names())
    assert (caught.value.field, agents.agents) == (field, ())


def test_unknown_fields_are_listed() -> None:
    with pytest.raises(InvalidAgentError, match="acts, turns"):
        runtime_agent("a", SOUND | {"turns": 1, "acts": 2})


def test_a_name_is_taken_by_a_builtin_agent_another_one_and_their_aliases() -> None:
    agents = RuntimeAgents()
    register(agents, "one", aliases=["x", "one", "x"])
    for name, fields in (
        ("scout", {}),
        ("y", {"aliases": ["oracle"]}),
        ("one", {}),
        ("x", {}),
        ("z", {"aliases": ["x"]}),
    ):
        with pytest.raises(InvalidAgentError, match="collides"):
            register(agents, name, **fields)
    assert [(each.name, each.aliases) for each in agents.agents] == [("one", ("x",))]


def test_a_disposed_registration_takes_no_later_one_along() -> None:
    agents = RuntimeAgents()
    first = register(agents, "one")
    first.dispose()
    second = register(agents, "one")
    first.dispose()
    assert agents.agents == (second.agent,)
    agents.clear()
    assert agents.agents == ()


def test_a_program_may_register_so_many() -> None:
    agents = RuntimeAgents()
    for number in range(MAX_RUNTIME_AGENTS):
        register(agents, f"a{number}")
    with pytest.raises(InvalidAgentError, match="200"):
        register(agents, "more")
