"""What a run's tool calls may be at most: how many, and which are refused beyond. Pure (contract, delegation 4.2).

Counted are attempted calls, the refused ones too. Call number ``hard`` is still allowed; from the next on those that
the budget blocks are refused, and a refusal stays on the run's record.
"""

from __future__ import annotations

import threading
from typing import Final, TypeGuard, cast

from pisub.errors import ToolBudgetError, UsageBudgetError
from pisub.protocol.base import Part
from pisub.runs.usage import Usage
from pisub.runs.usage_budget import UsageBudget, usage_state

#: ``code`` and ``reason`` of what a budget refused.
BLOCKED: Final = "tool_budget_exhausted"


class ToolBudget(Part, frozen=True, kw_only=True):
    """How many tool calls a child may attempt.

    Attributes:
        hard: Calls up to this number go through; of what is blocked, none after it.
        soft: At this number it is told to come to an end.
        block: The tools that are blocked then: names, or ``*`` alone for all.
    """

    hard: int
    soft: int | None = None
    block: tuple[str, ...] = ("read", "grep", "find", "ls")

    def blocks(self, tool: str) -> bool:
        """Tell whether a tool is refused once the budget is used up."""
        return self.block == ("*",) or tool in self.block


class BudgetState(Part, frozen=True, kw_only=True):
    """How a run stands with its budget: ``within-budget``, ``soft-reached`` or ``hard-blocked``.

    Attributes:
        blocked_tool: The first call that was refused; absent where none was.
    """

    outcome: str
    tool_count: int
    soft_reached_at: int | None = None
    hard_reached_at: int | None = None
    blocked_tool: str | None = None


def check_budget(value: object, *, lowest: int) -> ToolBudget:
    """Return a tool budget (contract, delegation 4.2).

    Args:
        value: Of any form.
        lowest: Of ``hard``: 1, or 0 where the caller may forbid all calls.

    Raises:
        ValueError: It is none; the sentence says why.
    """
    if not isinstance(value, dict):
        raise ValueError('expected an object, such as {"hard": 40, "soft": 30}')  # noqa: TRY004  # one kind for all
    given = cast("dict[object, object]", value)
    unknown = sorted(str(key) for key in given.keys() - {"hard", "soft", "block"})
    if unknown:
        raise ValueError(f"{unknown[0][:60]!a} is no key of it; there are hard, soft and block")
    hard, soft, block = given.get("hard"), given.get("soft"), given.get("block")
    if not _is_whole(hard) or hard < lowest:
        raise ValueError(f"hard must be an integer >= {lowest}")
    if soft is not None and (not _is_whole(soft) or not 1 <= soft <= hard):
        raise ValueError("soft must be an integer >= 1 and at most hard")
    if block is None:
        return ToolBudget(hard=hard, soft=soft)
    if block == "*":
        return ToolBudget(hard=hard, soft=soft, block=("*",))
    names = cast("list[object]", block) if isinstance(block, list | tuple) else []
    texts = dict.fromkeys(each.strip() for each in names if isinstance(each, str))
    if not names or len(names) > sum(isinstance(each, str) and bool(each.strip()) for each in names):
        raise ValueError('block must be "*" or a list of tools')
    return ToolBudget(hard=hard, soft=soft, block=tuple(texts))


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


class ToolMeter:
    """Counts a run's calls against its budget. Thread-safe: an agent's tools may run anywhere."""

    def __init__(self, budget: ToolBudget | None, usage_budget: UsageBudget | None = None) -> None:
        self._budget = budget
        self._usage_budget = usage_budget
        self._usage = Usage()
        self._lock = threading.Lock()
        self._count = 0
        self._soft_at: int | None = None
        self._hard_at: int | None = None
        self._blocked: str | None = None

    def attempt(self, tool: str, now_ms: int) -> str | None:
        """Count a call.

        Returns:
            What to tell the child, once, when it has come to the soft bound; else None.

        Raises:
            ToolBudgetError: It may not be made.
            UsageBudgetError: Likewise, for what models have used.
        """
        budget = self._budget
        with self._lock:
            self._count += 1
            if self._usage_budget is not None and usage_state(self._usage_budget, self._usage).exhausted:
                raise UsageBudgetError(f"Usage budget exhausted: the tool {tool} is refused. End with what you have.")
            if budget is None:
                return None
            if self._count > budget.hard:
                self._hard_at = now_ms if self._hard_at is None else self._hard_at
                if budget.blocks(tool):
                    self._blocked = self._blocked or tool
                    raise ToolBudgetError(
                        f"The tool {tool} is refused: the run's budget of {budget.hard} tool calls is used up. "
                        "End with what you have.",
                        tool=tool,
                    )
            if budget.soft is None or self._count < budget.soft or self._soft_at is not None:
                return None
            self._soft_at = now_ms
            return f"{self._count} of {budget.hard} tool calls are used: come to an end."

    def note_usage(self, usage: Usage) -> None:
        """Add what an answer of a model took."""
        with self._lock:
            self._usage = self._usage.plus(usage)

    def state(self) -> BudgetState | None:
        """Return how the run stands; None without a budget."""
        if self._budget is None:
            return None
        is_soft = self._soft_at is not None
        outcome = "hard-blocked" if self._hard_at is not None else "soft-reached" if is_soft else "within-budget"
        return BudgetState(
            outcome=outcome,
            tool_count=self._count,
            soft_reached_at=self._soft_at,
            hard_reached_at=self._hard_at,
            blocked_tool=self._blocked,
        )
