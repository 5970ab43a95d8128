"""The parts of a launch, each by its table: context, models, thinking, bridge, bindings, output, prompt."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pisub.agents.skills import Skill
from pisub.errors import InvalidArgumentError
from pisub.preflight.bindings import BindingsError, canonical, check_bindings
from pisub.preflight.bridge import (
    MARKER,
    BridgeError,
    BridgeState,
    BridgeWish,
    check_override,
    check_target,
    configured,
    resolve_bridge,
    with_instruction,
)
from pisub.preflight.context import resolve_context
from pisub.preflight.models import (
    ModelInfo,
    above_ceiling,
    lower_ceiling,
    resolve_models,
    resolve_thinking,
)
from pisub.preflight.output import OutputBinding, bind_output
from pisub.preflight.prompt import assemble_prompt


@pytest.mark.parametrize(
    "row",
    [
        (None, None, None, False, None, "fresh"),
        (None, None, "fork", False, None, "fresh"),
        (None, None, "fork", False, "leaf", "fresh"),
        (None, None, "fork", True, None, "fresh"),
        (None, None, "fork", True, "leaf", "fork"),
        ("fork", None, None, False, None, "fork"),
        ("fork", "fresh", "fresh", False, None, "fork"),
        ("fresh", "fork", "fork", True, "leaf", "fresh"),
        (None, "fresh", "fork", True, "leaf", "fresh"),
        (None, "fork", "fresh", True, "leaf", "fork"),
        (None, "fork", "fresh", True, None, "fresh"),
    ],
)
def test_an_implicit_fork_needs_a_session_and_a_leaf_and_an_explicit_one_stands(
    row: tuple[str | None, str | None, str | None, bool, str | None, str],
) -> None:
    explicit, configured, agent, session, leaf, expected = row
    found = resolve_context(
        explicit=explicit, configured=configured, agent_default=agent, has_parent_session=session, leaf_id=leaf
    )
    assert found == expected


BIG = ModelInfo(provider="a", id="big")
SMALL = ModelInfo(provider="a", id="small", reasoning=False)
OTHER = ModelInfo(provider="b", id="big")
NAMED = ModelInfo(provider="c", id="x", full_id="x-full")
ALL = (BIG, SMALL, OTHER, NAMED)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, ()),
        ({"requested": "any/thing"}, ("any/thing",)),
        ({"requested": "r", "agent_model": "m", "fallbacks": ["f", "r"]}, ("r", "f")),
        ({"agent_model": "m", "parent": BIG}, ("m",)),
        ({"agent_model": "inherit", "parent": BIG}, ("a/big",)),
        ({"parent": ModelInfo(provider="z", id="own"), "available": ALL}, ("z/own",)),
        ({"parent": NAMED}, ("x-full",)),
        ({"requested": "a/big", "available": ALL}, ("a/big",)),
        ({"requested": "big", "available": ALL}, ("a/big",)),
        ({"requested": "big", "available": ALL, "preferred_provider": "b"}, ("b/big",)),
        ({"requested": "big", "available": ALL, "preferred_provider": "q"}, ("a/big",)),
        ({"requested": "x-full", "fallbacks": ["small"], "available": ALL}, ("x-full", "a/small")),
    ],
)
def test_models_are_the_callers_then_the_agents_then_the_parents(
    wanted: dict[str, Any], expected: tuple[str, ...]
) -> None:
    found = resolve_models(**wanted)
    assert found.candidates == expected
    assert found.model == (expected[0] if expected else None)


def test_a_model_that_the_host_does_not_have_is_an_error() -> None:
    with pytest.raises(InvalidArgumentError, match="Unknown subagent model"):
        resolve_models(requested="nothing", available=ALL)
    with pytest.raises(InvalidArgumentError, match="Unknown subagent model"):
        resolve_models(requested="a/big", fallbacks=["nothing"], available=ALL)


@pytest.mark.parametrize(
    ("requested", "agent", "expected"),
    [(None, None, None), (None, "low", "low"), ("high", "low", "high"), (False, "low", "off"), ("off", None, "off")],
)
def test_thinking_is_the_callers_then_the_agents(
    requested: str | bool | None, agent: str | None, expected: str | None
) -> None:
    assert resolve_thinking(requested, agent) == expected


def test_a_level_that_is_none_is_refused() -> None:
    for level in ("much", True):
        with pytest.raises(InvalidArgumentError, match="thinking must be one of"):
            resolve_thinking(level, None)
    with pytest.raises(InvalidArgumentError, match="thinkingCeiling"):
        lower_ceiling("much")


@pytest.mark.parametrize(
    ("level", "ceilings", "candidates", "expected"),
    [
        ("high", (), ("a/big",), None),
        ("high", ("max", "high"), ("a/big",), None),
        ("high", ("max", "low"), ("a/big",), "a/big"),
        ("high", ("low",), ("a/small",), None),
        ("high", ("low",), ("a/small", "b/big"), "b/big"),
        ("high", ("low",), (), ""),
        (None, ("off",), ("a/big",), None),
        ("off", ("off",), ("a/big",), None),
    ],
)
def test_thinking_above_the_ceiling_is_found_for_any_candidate(
    level: str | None, ceilings: tuple[str, ...], candidates: tuple[str, ...], expected: str | None
) -> None:
    assert above_ceiling(level, lower_ceiling(*ceilings), candidates, ALL) == expected


@pytest.mark.parametrize(
    ("mode", "context", "ours", "active"),
    [
        ("always", "fresh", True, True),
        ("always", "fork", True, True),
        ("fork-only", "fresh", True, False),
        ("fork-only", "fork", True, True),
        ("off", "fork", True, False),
        ("always", "fork", False, False),
    ],
)
def test_the_bridge_is_active_by_mode_and_context(mode: str, context: str, ours: bool, active: bool) -> None:
    found = resolve_bridge(BridgeWish(mode=mode), context=context, has_tools_of_ours=ours)
    assert found == BridgeState(active=active, mode=mode)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({}, BridgeWish()),
        ({"mode": "off"}, BridgeWish(mode="off")),
        ({"instructionFile": "a" * 1024}, BridgeWish(instruction_file="a" * 1024)),
        ({"resultDelivery": True}, BridgeWish(result_delivery=True)),
        ([], None),
        ("always", None),
        ({"mode": "never"}, None),
        ({"mode": None}, None),
        ({"instructionFile": 5}, None),
        ({"instructionFile": "ä" * 513}, None),
        ({"resultDelivery": 1}, None),
        ({"target": "x"}, None),
    ],
)  # fmt: skip
def test_an_override_of_the_bridge_has_a_shape(value: object, expected: BridgeWish | None) -> None:
    if expected is None:
        with pytest.raises(BridgeError):
            check_override(value)
    else:
        assert check_override(value) == expected


def test_a_configured_mode_that_nobody_knows_is_always() -> None:
    assert configured({"mode": "never", "instructionFile": 5}) == BridgeWish()
    assert configured({"mode": "off", "resultDelivery": True}) == BridgeWish(mode="off", result_delivery=True)


@pytest.mark.parametrize("target", ["", "  ", 5, [], False])
def test_a_target_that_is_given_is_text(target: object) -> None:
    with pytest.raises(BridgeError):
        check_target(target)
    assert (check_target(None), check_target("t")) == (None, "t")


def test_the_instruction_stands_once_below_the_prompt() -> None:
    once = with_instruction("prompt", "tell {orchestratorTarget}", "me")
    assert once == f"prompt\n\n{MARKER}\ntell me"
    assert with_instruction(once, "other", "me") == once
    assert with_instruction("", "tell", "me") == f"{MARKER}\ntell"


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def cyclic() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value",
    [
        [],
        "text",
        {"noversion": 1},
        {"a/0": 1},
        {"a/1234567890": 1},
        {"/1": 1},
        {".a/1": 1},
        {"a" * 64 + "/1": 1},
        {5: 1},
        {f"a{number}/1": 1 for number in range(17)},
        {"a/1": deep(16)},
        {"a/1": {str(number): 1 for number in range(256)}},
        {"a/1": "x" * (16 * 1024)},
        {"a/1": "half \ud800"},
        {"a/1": math.nan},
        {"a/1": math.inf},
        {"a/1": 2**53 + 1},
        {"a/1": {1: 2}},
        {"a/1": (1, 2)},
        {"a/1": b"bytes"},
        {"a/1": cyclic()},
    ],
)
def test_bindings_that_break_a_rule_are_refused(value: object) -> None:
    with pytest.raises(BindingsError):
        check_bindings(value)


def test_bindings_are_copied_sorted_and_shared_parts_are_no_cycle() -> None:
    shared = [1, -0.0, None, True, "ä"]
    given = {"b.x_y-z/999999999": {"y": shared, "x": shared}, "a/1": deep(15)}
    found = check_bindings(given)
    assert list(found) == ["a/1", "b.x_y-z/999999999"]
    shared.append("later")
    text = '"b.x_y-z/999999999":{"x":[1,0,null,true,"ä"],"y":[1,0,null,true,"ä"]}}'
    assert canonical(found).decode().endswith(text)
    assert check_bindings({"a/1": "x" * (16 * 1024 - len('{"a/1":""}'))})


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, OutputBinding()),
        ({"agent_output": "r.md"}, OutputBinding(path="/work/r.md")),
        ({"agent_output": "r.md", "requested": False}, OutputBinding()),
        ({"agent_output": ""}, OutputBinding()),
        ({"agent_output": "r.md", "requested": "../x.md"}, OutputBinding(path="/x.md")),
        ({"agent_output": "r.md", "requested": True}, OutputBinding(path="/work/r.md")),
        ({"requested": "/a/b.md", "agent_mode": "file-only"}, OutputBinding(path="/a/b.md", mode="file-only")),
        ({"requested": "/a", "requested_mode": "inline", "agent_mode": "file-only"}, OutputBinding(path="/a")),
        ({"agent_mode": "file-only"}, OutputBinding()),
    ],
)
def test_the_output_is_the_callers_then_the_agents(wanted: dict[str, Any], expected: OutputBinding) -> None:
    assert bind_output(**wanted, cwd="/work") == expected


def test_the_prompt_is_put_together_in_one_order() -> None:
    skill = Skill(name="pdf", path="/s/pdf/SKILL.md", source="project", description="Reads PDFs")
    text = assemble_prompt("prompt", skills=[skill], memory="memory\n", overlay=" overlay", output_path="/out")
    assert text.split("\n\n") == [
        "prompt",
        (
            "Skills that are there for this task. Read a skill's file before you do what it is for.\n"
            "- pdf: Reads PDFs (file: /s/pdf/SKILL.md)"
        ),
        "memory",
        "overlay",
        "Write your result to the file /out.",
    ]
    assert assemble_prompt("prompt") == "prompt"
    assert assemble_prompt("") == ""
