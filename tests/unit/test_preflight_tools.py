"""Which tools a child gets, by declaration, need, ceiling and host; and what the audit says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pisub.agents.definition import AgentDefinition, AgentSource
from pisub.preflight.tools import BUILTIN_TOOLS, DeniedToolError, ToolSelectors, plan_tools, split_tools
from pisub.runs.ceilings import CapabilityAudit, CapabilityCeiling, check_ceiling

FILE = Path("/agents/a.md")


def agent(**fields: Any) -> AgentDefinition:
    return AgentDefinition(name="a", description="d", source=AgentSource.USER, file=FILE, **fields)


def ceiling(**policy: Any) -> CapabilityCeiling:
    return check_ceiling(policy, "test")


def test_the_entries_of_tools_are_sorted_by_kind() -> None:
    entries = ("read", "Bash", "ext:web/fetch", "mcp:git/log", "./x.py", "tool.ts", "read")
    assert split_tools(entries) == ToolSelectors(
        names=("read", "bash"), extension=("ext:web/fetch",), mcp=("mcp:git/log",), paths=("./x.py", "tool.ts")
    )
    everything = split_tools(("*", "more"))
    assert everything == ToolSelectors(names=(*BUILTIN_TOOLS, "more"), is_everything=True)
    assert split_tools(None) is None


READ_ONLY = ceiling(allowedTools=["read", "grep"])
NONE = ceiling(allowedTools=[])
AGENTS_ONLY = ceiling(allowedAgents=["a"])


@pytest.mark.parametrize(
    ("fields", "limit", "options", "expected"),
    [
        ({}, None, {}, None),
        ({"tools": ()}, None, {}, ()),
        ({"tools": ("read", "write")}, None, {}, ("read", "write")),
        ({"tools": ("*",)}, None, {}, BUILTIN_TOOLS),
        ({"tools": ("mcp:x/y",)}, None, {}, ()),
        ({}, READ_ONLY, {}, ("grep", "read")),
        ({}, NONE, {}, ()),
        ({}, AGENTS_ONLY, {}, None),
        ({"tools": ("read", "write")}, READ_ONLY, {}, ("read",)),
        ({"tools": ()}, READ_ONLY, {}, ()),
        ({"tools": ("*",)}, READ_ONLY, {}, ("read", "grep")),
        ({"tools": ("read",)}, NONE, {}, ()),
        ({"tools": ("read", "write"), "exclude_tools": ("write",)}, None, {}, ("read",)),
        ({"exclude_tools": ("read",)}, READ_ONLY, {}, ("grep",)),
        # skills need read
        ({"tools": ("grep",)}, None, {"needs_skills": True}, ("grep", "read")),
        ({}, None, {"needs_skills": True}, None),
        ({"tools": ("grep",)}, READ_ONLY, {"needs_skills": True}, ("grep", "read")),
        # the bridge's tool
        ({"tools": ("read",)}, None, {"is_bridge_active": True}, ("read", "contact_supervisor")),
        ({}, None, {"is_bridge_active": True}, None),
        ({"tools": ()}, None, {"is_bridge_active": True}, ()),
        ({"tools": ("mcp:x/y",)}, None, {"is_bridge_active": True}, ()),
        ({"tools": ("read",)}, READ_ONLY, {"is_bridge_active": True}, ("read",)),
        # structured output is our own
        ({"tools": ("read",)}, NONE, {"has_schema": True}, ("structured_output",)),
        ({}, None, {"has_schema": True}, None),
        # what the host lacks
        ({"tools": ("read", "bash")}, None, {"host_builtins": ("read",)}, ("read",)),
    ],
)
def test_the_effective_list(
    fields: dict[str, Any], limit: CapabilityCeiling | None, options: dict[str, Any], expected: tuple[str, ...] | None
) -> None:
    plan, _ = plan_tools(agent(**fields), ceiling=limit, **options)
    assert plan.effective_allowlist == expected
    assert plan.explicit_allowlist is (expected is not None)


@pytest.mark.parametrize(
    ("fields", "limit", "options", "words"),
    [
        ({}, ceiling(allowedTools=["grep"]), {"needs_skills": True}, "does not allow it"),
        ({"tools": ("read",)}, NONE, {"needs_skills": True}, "does not allow it"),
        ({"exclude_tools": ("read",)}, None, {"needs_skills": True}, "excludes it"),
        ({}, None, {"needs_skills": True, "host_builtins": ("grep",)}, "host does not have it"),
        ({"exclude_tools": ("structured_output",)}, None, {"has_schema": True}, "structured result"),
        ({"tools": ("mcp:x/y", "mcp:x/z")}, None, {"host_mcp": ("mcp:x/y",)}, "mcp:x/z"),
        ({"tools": ("read", "subagent_supervisor")}, None, {}, "may start no agents"),
        ({"tools": ("*",), "acceptance_role": "writer"}, READ_ONLY, {}, "change something"),
        ({"tools": ("read",), "acceptance_role": "writer"}, None, {}, "change something"),
    ],
)
def test_a_launch_that_needs_what_it_cannot_have_is_refused(
    fields: dict[str, Any], limit: CapabilityCeiling | None, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(DeniedToolError, match=words):
        plan_tools(agent(**fields), ceiling=limit, **options)


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": ("read",), "acceptance_role": "writer", "completion_guard": False},
        {"tools": ("read", "patch"), "acceptance_role": "writer", "mutation_tools": ("patch",)},
        {"tools": ("read", "mcp:x/y"), "acceptance_role": "writer"},
        {"acceptance_role": "writer"},
        {"tools": ("read",), "acceptance_role": "read-only"},
    ],
)
def test_who_need_change_nothing_or_can_is_launched(fields: dict[str, Any]) -> None:
    plan_tools(agent(**fields))


def test_the_audit_names_what_was_removed_and_no_path() -> None:
    limit = ceiling(allowedTools=["read"])
    plan, _ = plan_tools(agent(tools=("read", "write", "./secret/tool.py")), ceiling=limit, is_bridge_active=True)
    assert plan.capability_audit == CapabilityAudit(
        ceiling=limit,
        requested_tools=("read", "write", "contact_supervisor"),
        effective_tools=("read",),
        removed_tools=("write", "contact_supervisor"),
    )
    assert plan.tool_extension_paths == ("./secret/tool.py",)


def test_denied_extensions_are_counted_and_none_is_loaded() -> None:
    limit = ceiling(denyExtensions=True)
    fields: dict[str, Any] = {
        "extensions": ("/x/secret.py",),
        "subagent_only_extensions": ("web",),
        "tools": ("read", "./secret.py", "mcp:x/y", "ext:web"),
    }
    plan, _ = plan_tools(agent(**fields), ceiling=limit)
    audit = plan.capability_audit
    assert audit is not None
    assert (audit.removed_extension_count, audit.requested_mcp_tool_count, audit.effective_mcp_tools) == (3, 1, ())
    assert (plan.configured_extensions, plan.extension_args, plan.disable_ambient_extensions) == ((), (), True)
    assert "secret" not in repr(audit)
    assert audit.summary == "1 tools removed, 3 extension entries removed (capability ceiling: test)"
    plan, _ = plan_tools(agent(**fields))
    assert plan.extension_args == ("/x/secret.py", "web", "./secret.py")
    assert plan.capability_audit is None


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (None, True),
        (ceiling(denyExtensions=False), True),
        (ceiling(denyExtensions=True), False),
        (ceiling(allowedTools=[]), False),
        (ceiling(allowedTools=["read"]), False),
        (ceiling(allowedTools=["read", "ext:checkpoint-bridge"]), True),
        (ceiling(allowedTools=["ask_user_via_host"]), True),
        (ceiling(allowedTools=["ext:checkpoint-bridge"], denyExtensions=True), False),
        (ceiling(allowedAgents=["a"]), True),
    ],
)
def test_a_ceiling_takes_away_asking(limit: CapabilityCeiling | None, expected: bool) -> None:
    granted = agent(tools=("*", "ext:checkpoint-bridge"), extensions=("checkpoint-bridge",))
    assert granted.can_ask
    assert plan_tools(granted, ceiling=limit)[0].can_ask is expected
    assert not plan_tools(agent(tools=("*",)), ceiling=limit)[0].can_ask


@pytest.mark.parametrize(
    ("fields", "limit", "expected"),
    [
        ({}, None, True),
        ({"tools": ("read",)}, None, False),
        ({"tools": ("read", "subagent")}, None, True),
        ({"tools": ("read",), "allow_nested_subagents": True}, None, True),
        ({"allow_nested_subagents": False}, None, False),
        ({"allow_nested_subagents": True}, READ_ONLY, False),
        ({"tools": ("subagent",)}, ceiling(allowedTools=["subagent"]), True),
    ],
)
def test_who_may_start_agents(fields: dict[str, Any], limit: CapabilityCeiling | None, expected: bool) -> None:
    assert plan_tools(agent(**fields), ceiling=limit)[0].fanout_authorized is expected


@pytest.mark.parametrize(
    ("fields", "foreground", "configured", "ambient"),
    [
        ({}, False, None, True),
        ({}, True, None, False),
        ({"extensions": ()}, False, (), False),
        ({"extensions": ("web",)}, False, ("web",), False),
        ({"extensions": ("Web", "x"), "exclude_extensions": ("web",)}, False, ("x",), False),
    ],
)
def test_extensions_omitted_are_those_at_hand_and_listed_are_exactly_those(
    fields: dict[str, Any], foreground: bool, configured: tuple[str, ...] | None, ambient: bool
) -> None:
    plan, _ = plan_tools(agent(**fields), is_foreground=foreground)
    assert (plan.configured_extensions, not plan.disable_ambient_extensions) == (configured, ambient)


@pytest.mark.parametrize(
    ("fields", "codes"),
    [
        ({"tools": ("read", "ext:web"), "extensions": ("Web",)}, []),
        ({"tools": ("read", "ext:web"), "extensions": ("*",)}, []),
        ({"tools": ("read", "ext:web")}, ["extension-error"]),
        ({"extensions": ()}, ["extension-error"]),
        ({"tools": ("read", "reed")}, ["tools-error"]),
        ({"tools": ("patch",), "mutation_tools": ("patch",)}, []),
        ({"tools": ("Read", "subagent", "bg_wait")}, []),
    ],
)
def test_what_is_odd_is_said_and_grants_nothing(fields: dict[str, Any], codes: list[str]) -> None:
    assert [each.code for each in plan_tools(agent(**fields))[1]] == codes


def test_an_mcp_tool_is_left_by_its_provider_or_its_name() -> None:
    tools = ("mcp:git/log", "mcp:git/push", "mcp:web/get")
    for allowed, left in (
        (["mcp:git"], ("mcp:git/log", "mcp:git/push")),
        (["push"], ("mcp:git/push",)),
        (["read"], ()),
    ):
        assert plan_tools(agent(tools=tools), ceiling=ceiling(allowedTools=allowed))[0].effective_mcp_tools == left
    assert plan_tools(agent(tools=tools))[0].effective_mcp_tools == tools
