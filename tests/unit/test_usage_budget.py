"""Budgets of what models use: the shape, the verdict, and the refusal of the next call (delegation 4.4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from pisub.child import Child
from pisub.errors import UsageBudgetError
from pisub.runs.usage import Usage
from pisub.runs.usage_budget import (
    UsageBudget,
    UsageBudgetState,
    UsageLimit,
    check_usage_budget,
    remaining,
    stricter,
    usage_state,
)
from tests.support.engine_shell import RecordingShell, context

BOTH = check_usage_budget({"tokens": {"soft": 5, "hard": 10}, "costUsd": {"hard": 1.5}})


def test_a_budget_has_tokens_or_costs_or_both() -> None:
    assert UsageBudget(tokens=UsageLimit(hard=10, soft=5), cost_usd=UsageLimit(hard=1.5)) == BOTH
    assert check_usage_budget({"costUsd": {"hard": 2}}) == UsageBudget(cost_usd=UsageLimit(hard=2))


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        [],
        {"x": 1},
        {"tokens": 5},
        {"tokens": {}},
        {"tokens": {"hard": 0}},
        {"tokens": {"hard": True}},
        {"tokens": {"hard": float("inf")}},
        {"tokens": {"hard": 5, "soft": 6}},
        {"tokens": {"hard": 5, "soft": 0}},
        {"tokens": {"hard": 5, "x": 1}},
        {"costUsd": {"hard": "1"}},
    ],
)
def test_anything_else_is_none(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"usage budget|tokens|costUsd"):
        check_usage_budget(wrong)


@pytest.mark.parametrize(
    ("usage", "outcome", "reason"),
    [
        (Usage(input=2, output=2, cache_read=99, cache_write=99), "within-budget", None),
        (Usage(input=3, output=2), "soft-exceeded", "tokens"),
        (Usage(input=5, output=5), "hard-exceeded", "tokens"),
        (Usage(cost=1.5), "hard-exceeded", "costUsd"),
        (Usage(input=10, cost=2), "hard-exceeded", "tokens"),
        (Usage(input=9, cost=2), "hard-exceeded", "costUsd"),
    ],
)
def test_the_bound_itself_is_the_end_and_tokens_are_named_first(usage: Usage, outcome: str, reason: str | None) -> None:
    is_hard = outcome == "hard-exceeded"
    assert usage_state(BOTH, usage) == UsageBudgetState(outcome=outcome, exhausted=is_hard, reason=reason)


def test_what_is_left_and_what_is_stricter() -> None:
    assert remaining(BOTH, Usage(input=6, cost=0.5)) == UsageBudget(
        tokens=UsageLimit(hard=4), cost_usd=UsageLimit(hard=1.0)
    )
    tokens = UsageBudget(tokens=UsageLimit(hard=3))
    assert stricter(BOTH, tokens) == UsageBudget(tokens=UsageLimit(hard=3), cost_usd=UsageLimit(hard=1.5))
    assert stricter(None, tokens) == stricter(tokens, None) == tokens
    assert stricter(None, None) is None


def test_the_call_after_the_line_was_crossed_is_refused(tmp_path: Path) -> None:
    child = Child(msgspec.structs.replace(context(tmp_path), usage_budget=BOTH), RecordingShell())
    child.report_usage(input=9)
    with child.tool("one"):
        child.report_usage(input=9)
    with pytest.raises(UsageBudgetError, match="Usage budget exhausted: the tool two is refused"), child.tool("two"):
        raise AssertionError
