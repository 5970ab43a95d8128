"""What a delegation's request may hold: the contract's fields, bounds and order (delegation 1.2 to 1.4)."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pisub.hosting.delegation_request import Attempt, Delegation, Invalid, parse_cancel, parse_request
from pisub.runs.budgets import ToolBudget

WHOLE: dict[str, Any] = {
    "requestId": "r",
    "ownerRunId": "o",
    "nodeId": "n",
    "agent": "a",
    "task": "t",
    "context": "fresh",
    "cwd": "/",
    "result": {"kind": "text"},
}


def error(**fields: Any) -> str:
    found = parse_request({**WHOLE, **fields})
    assert isinstance(found, Invalid), found
    return found.error


def valid(**fields: Any) -> Delegation:
    found = parse_request({**WHOLE, **fields})
    assert isinstance(found, Delegation), found
    return found


def test_a_whole_request_is_kept_as_it_was_said() -> None:
    schema = {"type": "object"}
    found = valid(
        requestId=" r ",
        model="m",
        thinking="xhigh",
        timeoutMs=2_147_483_647,
        toolBudget={"hard": 0, "block": "*"},
        skill=["a", "b"],
        artifacts=False,
        intercomBridge={"mode": "off"},
        context="fork",
        result={"kind": "structured", "schema": schema},
    )
    assert found == Delegation(
        attempt=Attempt(" r ", "o", "n"),
        agent="a",
        task="t",
        context="fork",
        cwd="/",
        model="m",
        thinking="xhigh",
        timeout_ms=2_147_483_647,
        tool_budget=ToolBudget(hard=0, block=("*",)),
        skill=("a", "b"),
        artifacts=False,
        intercom_bridge={"mode": "off"},
        schema=schema,
    )
    assert found.schema is not schema


TWO_BYTES = "ä"
BOUNDS = [
    ("task", 524_288, "task exceeds 1 MiB"),
    ("cwd", 16_384, "cwd exceeds 32 KiB"),
    ("agent", 512, "agent exceeds 1 KiB"),
    ("model", 512, "model exceeds 1 KiB"),
    ("skill", 512, "skill entry exceeds 1 KiB"),
]


@pytest.mark.parametrize(("field", "characters", "says"), BOUNDS)
def test_bounds_are_bytes_of_utf8_and_the_bound_itself_is_allowed(field: str, characters: int, says: str) -> None:
    assert valid(**{field: TWO_BYTES * characters})
    assert error(**{field: TWO_BYTES * (characters + 1)}) == says


def test_ids_are_bounded_in_characters_as_their_first_peers_count_them() -> None:
    assert valid(nodeId=TWO_BYTES * 256)
    assert valid(nodeId="😀" * 128)
    for wrong in (TWO_BYTES * 257, "😀" * 129, "a\nb", "a\rb", " ", "", 1, None, "\ud800"):
        assert "256 characters without newlines" in error(nodeId=wrong)
        assert "ownerRunId" in error(ownerRunId=wrong)
        assert parse_request({**WHOLE, "requestId": wrong}) is None


def test_skills_are_bounded_in_number_and_in_sum() -> None:
    assert valid(skill=["x" * 256] * 256)
    assert error(skill=["x"] * 257) == "skill supports at most 256 entries"
    assert error(skill=["x" * 257] * 256) == "skill entries exceed 64 KiB in aggregate"


@pytest.mark.parametrize("field", ["version", "output", "acceptance", "agentContract", "turnBudget", "x"])
def test_a_field_that_it_does_not_have_is_named(field: str) -> None:
    assert error(**{field: 1}) == f"Unsupported delegation field: {field}"
    assert error(**{field: None}) == f"Unsupported delegation field: {field}"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"agent": " "}, "agent must be non-blank"),
        ({"task": ""}, "task must be non-blank"),
        ({"context": None}, "context must be fresh or fork"),
        ({"context": "Fresh"}, "context must be fresh or fork"),
        ({"cwd": 1}, "cwd must be non-blank"),
        ({"model": None}, "model must be non-blank"),
        ({"timeoutMs": 0}, "timeoutMs must be an integer >= 1"),
        ({"timeoutMs": True}, "timeoutMs must be an integer >= 1"),
        ({"timeoutMs": 5.0}, "timeoutMs must be an integer >= 1"),
        ({"timeoutMs": None}, "timeoutMs must be an integer >= 1"),
        ({"timeoutMs": 2_147_483_648}, "timeoutMs must be <= 2147483647"),
        ({"toolBudget": {"hard": 1, "x": 1}}, "'x' is no key"),
        ({"toolBudget": {"hard": 0, "soft": 0}}, "soft must be an integer >= 1"),
        ({"toolBudget": {"hard": 0, "soft": 1}}, "soft must be an integer >= 1"),
        ({"toolBudget": {"hard": True}}, "hard must be an integer >= 0"),
        ({"toolBudget": {"hard": -1}}, "hard must be an integer >= 0"),
        ({"toolBudget": {"hard": 1, "block": []}}, "block must be"),
        ({"toolBudget": {"hard": 1, "block": ["a", " "]}}, "block must be"),
        ({"toolBudget": None}, "toolBudget"),
        ({"skill": []}, "skill must be"),
        ({"skill": [" "]}, "skill must be"),
        ({"skill": " "}, "skill must be"),
        ({"artifacts": 1}, "artifacts must be true or false"),
        ({"intercomBridge": []}, "intercomBridge must be an object"),
        ({"intercomBridge": {"x": 1}}, "intercomBridge has no key"),
        ({"intercomBridge": {"mode": "on"}}, "intercomBridge.mode"),
        ({"intercomBridge": {"instructionFile": "x" * 1_025}}, "intercomBridge.instructionFile"),
        ({"thinking": "hard"}, "thinking must be one of"),
        ({"thinking": None}, "thinking must be one of"),
        ({"result": None}, "result must be an object"),
        ({"result": {}}, "result.kind"),
        ({"result": {"kind": "json"}}, "result.kind"),
        ({"result": {"kind": "text", "schema": {}}}, "result.schema is not supported"),
        ({"result": {"kind": "structured", "schema": {}, "x": 1}}, "result.x is not supported"),
        ({"result": {"kind": "structured"}}, "result.schema must be a JSON Schema object"),
        ({"result": {"kind": "structured", "schema": []}}, "result.schema must be a JSON Schema object"),
        ({"result": {"kind": "structured", "schema": {"a": math.nan}}}, "result.schema must be plain JSON data"),
        ({"result": {"kind": "structured", "schema": {"a": "x" * 65_536}}}, "result.schema exceeds 64 KiB"),
        ({"result": {"kind": "structured", "schema": {"type": "x"}}}, "result.schema: $.type"),
        ({"result": {"kind": "structured", "schema": {"$ref": "http://x"}}}, "not local"),
    ],
)
def test_a_fault_is_said_in_the_contract_s_words(fields: dict[str, Any], says: str) -> None:
    assert says in error(**fields)


@pytest.mark.parametrize(
    "budget", [{"hard": 0}, {"hard": 0, "block": "*"}, {"hard": 0, "block": ["bash"]}, {"hard": 2, "soft": 2}]
)
def test_a_budget_of_no_calls_is_for_a_delegation_to_give(budget: dict[str, Any]) -> None:
    assert valid(toolBudget=budget).tool_budget is not None


#: Every check with a fault for it, in the contract's order.
FAULTS: list[tuple[str, dict[str, Any]]] = [
    ("ownerRunId must", {"ownerRunId": ""}),
    ("nodeId must", {"nodeId": ""}),
    ("Unsupported delegation field: version", {"version": 1}),
    ("agent must", {"agent": ""}),
    ("task must", {"task": ""}),
    ("context must", {"context": ""}),
    ("cwd must", {"cwd": ""}),
    ("model must", {"model": 1}),
    ("timeoutMs must be an", {"timeoutMs": 0}),
    ("timeoutMs must be <=", {"timeoutMs": 2**31}),
    ("is no key", {"toolBudget": {"hard": -1, "x": 1}}),
    ("hard must", {"toolBudget": {"hard": -1}}),
    ("skill must", {"skill": ""}),
    ("artifacts must", {"artifacts": 1}),
    ("intercomBridge must", {"intercomBridge": 1}),
    ("intercomBridge.instructionFile", {"intercomBridge": {"instructionFile": "x" * 1_025}}),
    ("task exceeds", {"task": "x" * 1_048_577}),
    ("cwd exceeds", {"cwd": "x" * 32_769}),
    ("agent exceeds", {"agent": "x" * 1_025}),
    ("model exceeds", {"model": "x" * 1_025}),
    ("skill supports", {"skill": ["x" * 1_025] * 257}),
    ("skill entry exceeds", {"skill": ["x" * 1_025] * 256}),
    ("skill entries exceed", {"skill": ["x" * 1_024] * 256}),
    ("thinking must", {"thinking": "x"}),
    ("result must", {"result": 1}),
    ("result.kind", {"result": {"kind": "x", "y": 1}}),
    ("result.y is not", {"result": {"kind": "structured", "y": 1}}),
    ("result.schema must be a JSON", {"result": {"kind": "structured", "schema": 1}}),
    ("result.schema must be plain", {"result": {"kind": "structured", "schema": {"a": math.inf}}}),
]


@pytest.mark.parametrize("first", range(len(FAULTS)), ids=lambda at: FAULTS[at][0])
def test_the_first_fault_in_the_order_of_the_contract_wins(first: int) -> None:
    payload = dict(WHOLE)
    for _, fields in reversed(FAULTS[first:]):
        payload.update(fields)
    found = parse_request(payload)
    assert isinstance(found, Invalid)
    assert FAULTS[first][0] in found.error


def test_of_unknown_fields_the_first_is_named() -> None:
    found = parse_request({"z": 1, **WHOLE, "a": 1})
    assert isinstance(found, Invalid)
    assert found.error.endswith(": z")


def test_a_cancellation_is_exactly_an_identity() -> None:
    whole = {"requestId": "r", "ownerRunId": "o", "nodeId": "n"}
    assert parse_cancel(whole) == Attempt("r", "o", "n")
    assert parse_cancel({**whole, "agent": "a"}) is None
    assert parse_cancel({"requestId": "r"}) is None
