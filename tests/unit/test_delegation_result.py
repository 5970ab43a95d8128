"""From a run's end to a delegation's answer: the table of statuses, the projection, the snapshots."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pisub.hosting.delegation_progress import Snapshot
from pisub.hosting.delegation_request import Attempt
from pisub.hosting.delegation_result import response_of
from pisub.protocol.delegation import DelegationResponse, DelegationUpdate, DelegationUsage, ToolUse
from pisub.protocol.runs import RunState
from pisub.record.model import JournalEvent, RunResult
from pisub.runs.budgets import BudgetState
from pisub.runs.usage import Usage

ATTEMPT = Attempt("r", "o", "n")
BLOCKED = BudgetState(outcome="hard-blocked", tool_count=1, hard_reached_at=1, blocked_tool="read")
WITHIN = BudgetState(outcome="hard-blocked", tool_count=1, hard_reached_at=1)


def result(state: RunState = RunState.COMPLETE, **fields: Any) -> RunResult:
    is_success = state is RunState.COMPLETE
    whole = {"success": is_success, "exit_code": 0 if is_success else 1, "ended_at": 1, **fields}
    return RunResult(run_id="run", session_id="s", agent="a", state=state, **whole)


def respond(found: RunResult, text: str = "text", *, is_structured: bool = False) -> DelegationResponse:
    return response_of(ATTEMPT, found, None, text, is_structured=is_structured)


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (result(RunState.FAILED, reason="timeout", tool_budget_state=BLOCKED), "timed_out"),
        (result(RunState.FAILED, reason="ancestor-timeout"), "timed_out"),
        (
            result(RunState.FAILED, reason="structured_output_failed", tool_budget_state=BLOCKED),
            "structured_output_failed",
        ),
        (result(tool_budget_state=BLOCKED), "tool_budget_exhausted"),
        (result(RunState.STOPPED, tool_budget_state=BLOCKED), "tool_budget_exhausted"),
        (result(RunState.STOPPED), "interrupted"),
        (result(RunState.PAUSED), "interrupted"),
        (result(RunState.FAILED, reason="agent-error", error="broke"), "failed"),
        (result(RunState.FAILED, reason="runner-died"), "failed"),
        (result(tool_budget_state=WITHIN), "completed"),
        (result(), "completed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_first_condition_of_the_table_is_the_status(found: RunResult, status: str) -> None:
    response = respond(found)
    assert response.status == status
    assert (response.result is None) == (status != "completed")
    assert (response.error is None) == (status == "completed")


def test_a_text_stays_a_text_whatever_it_looks_like() -> None:
    assert respond(result(), '{"a": 1}').result == {"kind": "text", "text": '{"a": 1}'}


@pytest.mark.parametrize(
    ("text", "status"), [("", "failed"), ("ä" * 524_288, "completed"), ("ä" * 524_288 + "x", "failed")]
)
def test_a_text_that_is_missing_or_over_its_bound_fails(text: str, status: str) -> None:
    response = respond(result(), text)
    assert response.status == status
    assert (response.result is None) == (status == "failed")


def deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "status"),
    [
        (None, "completed"),
        ({"a": [1]}, "completed"),
        (deep(29), "completed"),
        (deep(30), "failed"),
        (msgspec.UNSET, "failed"),
    ],
    ids=["null", "object", "deep", "too deep", "missing"],
)
def test_a_structured_value_is_the_captured_one_and_null_is_one(value: Any, status: str) -> None:
    response = respond(result(structured=value), "a text", is_structured=True)
    assert response.status == status
    if status == "completed":
        assert response.result == {"kind": "structured", "value": value}
        assert response.value == value
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(response))["result"]["value"] == value
    else:
        assert "structured result" in (response.error or "")


def test_a_usage_is_there_where_the_child_reported_one() -> None:
    assert respond(result()).usage is None
    usage = Usage(input=1, output=2, cache_read=3, cache_write=4, cost=0.5, turns=6)
    assert respond(result(usage=usage, duration_ms=7)).usage == DelegationUsage(
        input=1, output=2, cache_read=3, cache_write=4, cost=0.5, turns=6, tool_calls=0, duration_ms=7
    )


def event(kind: str, **data: Any) -> JournalEvent:
    return JournalEvent(type=kind, seq=1, ts=1, run_id="run", data=data)


def test_a_snapshot_shows_the_open_tool_the_last_lines_and_the_sums() -> None:
    snapshot = Snapshot(ATTEMPT, "run", 1_000)
    assert snapshot.update(1_000) == DelegationUpdate(**ATTEMPT._asdict(), run_id="run", tool_count=0, duration_ms=0)
    for each in (
        event("subagent.tool.started", tool="read", args={"path": "a"}, callId=1),
        event("subagent.child.log", text="first\n\n(running...)\n"),
        event("subagent.child.stdout", text=" "),
        event("subagent.tool.started", tool="grep", args={}, callId=2),
        event("subagent.tool.completed", tool="grep", callId=2),
        event("subagent.child.usage", input=5, output=2, model="m"),
        event("subagent.child.usage", input=1, output=0, model=""),
        event("subagent.control"),
    ):
        snapshot.take(each)
    assert snapshot.update(1_500) == DelegationUpdate(
        **ATTEMPT._asdict(),
        run_id="run",
        current_tool="read",
        current_tool_args='{"path":"a"}',
        recent_output="first",
        recent_output_lines=("first",),
        recent_tools=(ToolUse(tool="read", args='{"path":"a"}'), ToolUse(tool="grep")),
        model="m",
        tool_count=2,
        duration_ms=500,
        tokens=8,
    )


def test_a_snapshot_is_bounded() -> None:
    snapshot = Snapshot(ATTEMPT, "run", 0)
    for at in range(100):
        snapshot.take(event("subagent.child.log", text=f"{at} " + "x" * 10_000))
        snapshot.take(event("subagent.tool.started", tool="t", args={"a": "y" * 10_000}, callId=at))
    assert len(msgspec.msgpack.encode(snapshot.update(1))) < 10_000
