"""Budgets of tool calls: what a run may attempt, and what becomes of the next call (delegation 4.2)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pisub.child import Child
from pisub.engines.base import LogLine, ToolEnded, ToolStarted
from pisub.engines.python import PythonEngine
from pisub.errors import ToolBudgetError
from pisub.runs.budgets import BudgetState, ToolBudget, ToolMeter, check_budget
from pisub.runs.spec import RunnerSpec
from tests.support.engine_shell import RecordingShell, context


def refused(meter: ToolMeter, tool: str) -> bool:
    try:
        meter.attempt(tool, 1)
    except ToolBudgetError:
        return True
    return False


def test_call_number_hard_is_allowed_and_the_next_is_not() -> None:
    meter = ToolMeter(ToolBudget(hard=2, block=("*",)))
    assert [refused(meter, "x") for _ in range(4)] == [False, False, True, True]
    assert meter.state() == BudgetState(outcome="hard-blocked", tool_count=4, hard_reached_at=1, blocked_tool="x")


def test_tools_that_are_not_blocked_go_on_and_the_refused_count_too() -> None:
    meter = ToolMeter(ToolBudget(hard=1))
    assert [refused(meter, each) for each in ("bash", "write", "read", "bash")] == [False, False, True, False]
    state = meter.state()
    assert state is not None
    assert (state.tool_count, state.blocked_tool) == (4, "read")


def test_the_soft_bound_is_told_once() -> None:
    meter = ToolMeter(ToolBudget(hard=3, soft=2))
    assert [meter.attempt("bash", 5) for _ in range(3)] == [None, "2 of 3 tool calls are used: come to an end.", None]
    assert meter.state() == BudgetState(outcome="soft-reached", tool_count=3, soft_reached_at=5)


def test_within_it_nothing_is_said_and_without_one_there_is_no_state() -> None:
    meter = ToolMeter(ToolBudget(hard=1))
    assert meter.attempt("read", 1) is None
    assert meter.state() == BudgetState(outcome="within-budget", tool_count=1)
    assert ToolMeter(None).state() is None


def test_no_calls_at_all_is_a_budget_for_those_who_may_give_it() -> None:
    assert check_budget({"hard": 0, "block": "*"}, lowest=0) == ToolBudget(hard=0, block=("*",))
    with pytest.raises(ValueError, match="hard must be an integer >= 1"):
        check_budget({"hard": 0, "block": "*"}, lowest=1)


def test_a_refused_tool_is_shown_as_failed_and_nothing_of_it_is_done(tmp_path: Path) -> None:
    shell = RecordingShell()
    budget = ToolBudget(hard=1, soft=1, block=("*",))
    child = Child(msgspec.structs.replace(context(tmp_path), tool_budget=budget), shell)
    assert child.tool_budget == budget
    done: list[str] = []
    with child.tool("one"):
        done.append("one")
    with pytest.raises(ToolBudgetError, match="two is refused") as raised, child.tool("two"):
        done.append("two")
    assert (raised.value.tool, done) == ("two", ["one"])
    assert shell.events == [
        ToolStarted(1, "one"),
        LogLine("1 of 1 tool calls are used: come to an end."),
        ToolEnded(1, "one"),
        ToolStarted(2, "two"),
        ToolEnded(2, "two", is_error=True),
    ]


@pytest.mark.parametrize(
    ("body", "reason", "text"),
    [
        ("    with child.tool('x'): pass\n    return 'never'", "tool_budget_exhausted", ""),
        (
            "    try:\n        with child.tool('x'): pass\n    except Exception: pass\n    return 'all the same'",
            None,
            "all the same",
        ),
    ],
)
def test_a_block_stays_on_the_run_s_end_also_where_it_went_on_well(
    tmp_path: Path, body: str, reason: str | None, text: str
) -> None:
    (tmp_path / "budgeted.py").write_text(f"def main(child):\n{body}")
    told = msgspec.structs.replace(context(tmp_path), tool_budget=ToolBudget(hard=0, block=("*",)))
    runner = RunnerSpec(type="python", target=f"{tmp_path}/budgeted.py:main")
    settled = PythonEngine(runner, told, RecordingShell()).run()
    assert (settled.reason, settled.text) == (reason, text)
    assert settled.tool_budget_state is not None
    assert settled.tool_budget_state.blocked_tool == "x"
