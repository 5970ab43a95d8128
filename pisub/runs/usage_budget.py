"""What a run, and all that it starts, may use of models: tokens and US dollars. Pure (contract, delegation 4.4).

Counted is what children report (``child.report_usage``). Nothing is cut off in the middle: whoever crosses the line
ends as it does, and the next call, of a tool or for another run, is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, cast

from pisub.protocol.base import Part
from pisub.runs.usage import Usage

#: ``code`` and ``reason`` of what a usage budget refused.
EXHAUSTED: Final = "usage_budget_exhausted"


class UsageLimit(Part, frozen=True, kw_only=True):
    """A bound, reached at ``hard``; ``soft`` is only shown."""

    hard: float
    soft: float | None = None


class UsageBudget(Part, frozen=True, kw_only=True):
    """A budget that holds; at least one of the two is there. Tokens are those sent and answered, without caches'."""

    tokens: UsageLimit | None = None
    cost_usd: UsageLimit | None = None


class UsageBudgetState(Part, frozen=True, kw_only=True):
    """How a run stands with it: ``within-budget``, ``soft-exceeded`` or ``hard-exceeded``, and by which of the two."""

    version: int = 1
    source: str = "reported"
    outcome: str
    exhausted: bool
    reason: str | None = None


def check_usage_budget(value: object) -> UsageBudget:
    """Return a budget.

    Args:
        value: ``{tokens?: {hard, soft?}, costUsd?: {hard, soft?}}``.

    Raises:
        ValueError: It is none; the sentence says why.
    """
    given = _object(value, ("tokens", "costUsd"), "usage budget")
    if not given:
        raise ValueError("a usage budget has tokens, costUsd, or both")
    return UsageBudget(
        tokens=_limit(given["tokens"], "tokens") if "tokens" in given else None,
        cost_usd=_limit(given["costUsd"], "costUsd") if "costUsd" in given else None,
    )


def usage_state(budget: UsageBudget, usage: Usage) -> UsageBudgetState:
    """Return how a usage stands with a budget; where both bounds are reached, the reason is tokens."""
    parts = (
        ("tokens", budget.tokens, usage.input + usage.output),
        ("costUsd", budget.cost_usd, usage.cost),
    )
    for name, limit, used in parts:
        if limit is not None and used >= limit.hard:
            return UsageBudgetState(outcome="hard-exceeded", exhausted=True, reason=name)
    for name, limit, used in parts:
        if limit is not None and limit.soft is not None and used >= limit.soft:
            return UsageBudgetState(outcome="soft-exceeded", exhausted=False, reason=name)
    return UsageBudgetState(outcome="within-budget", exhausted=False)


def remaining(budget: UsageBudget, usage: Usage) -> UsageBudget:
    """Return what a budget that is not exhausted leaves after a usage."""
    return UsageBudget(
        tokens=_less(budget.tokens, usage.input + usage.output), cost_usd=_less(budget.cost_usd, usage.cost)
    )


def stricter(one: UsageBudget | None, other: UsageBudget | None) -> UsageBudget | None:
    """Return what both allow."""
    if one is None or other is None:
        return one or other
    return UsageBudget(tokens=_lower(one.tokens, other.tokens), cost_usd=_lower(one.cost_usd, other.cost_usd))


def _less(limit: UsageLimit | None, used: float) -> UsageLimit | None:
    if limit is None:
        return None
    soft = None if limit.soft is None or limit.soft <= used else limit.soft - used
    return UsageLimit(hard=limit.hard - used, soft=soft)


def _lower(one: UsageLimit | None, other: UsageLimit | None) -> UsageLimit | None:
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda each: each.hard)


def _limit(value: object, name: str) -> UsageLimit:
    given = _object(value, ("hard", "soft"), name)
    hard, soft = given.get("hard"), given.get("soft")
    for field, each in (("hard", hard), ("soft", soft)):
        if (each is not None or field == "hard") and not _is_positive(each):
            raise ValueError(f"{name}.{field} must be a number above 0")
    if soft is not None and cast("float", soft) > cast("float", hard):
        raise ValueError(f"{name}.soft must be at most hard")
    return UsageLimit(hard=cast("float", hard), soft=cast("float | None", soft))


def _object(value: object, keys: tuple[str, ...], name: str) -> Mapping[object, object]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be an object")  # noqa: TRY004  # one kind for all
    given = cast("Mapping[object, object]", value)
    unknown = [str(key)[:60] for key in given if key not in keys]
    if unknown:
        raise ValueError(f"{name} has no key {unknown[0]!a}; there are {', '.join(keys)}")
    return given


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
