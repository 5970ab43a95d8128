"""From the end of a run to the answer of its delegation (contract, delegation 1.9 and 1.8). Pure."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from pisub.hosting.delegation_core import answer
from pisub.hosting.delegation_request import Attempt
from pisub.protocol.delegation import DelegationResponse, DelegationUsage
from pisub.protocol.limits import MAX_DELEGATION_TEXT_BYTES, MAX_DELEGATION_VALUE_DEPTH
from pisub.protocol.runs import RunState
from pisub.record.model import RunResult, RunStatus
from pisub.runs.budgets import BLOCKED

_TIMEOUTS: Final = frozenset({"timeout", "ancestor-timeout"})
_STRUCTURED_FAILED: Final = "structured_output_failed"


def response_of(
    attempt: Attempt, result: RunResult, status: RunStatus | None, text: str, *, is_structured: bool
) -> DelegationResponse:
    """Return the answer to an attempt whose run has ended.

    Args:
        attempt: Whose.
        result: How the run ended.
        status: Its last status, for what its child used; None where it never began.
        text: Its whole text.
        is_structured: Whether a value was asked for.
    """
    verdict = status_of(result, status)
    error = None if verdict == "completed" else result.error or result.reason or f"The run ended as {result.state}."
    projected: dict[str, Any] | None = None
    if verdict == "completed":
        projected, error = _project(result, text, is_structured=is_structured)
        verdict = "completed" if error is None else "failed"
    step = status.steps[0] if status is not None and status.steps else None
    return answer(
        attempt,
        verdict,
        error,
        run_id=result.run_id,
        agent=result.agent,
        model=None if step is None else step.model,
        exit_code=result.exit_code,
        launch_contract_digest=result.launch_contract_digest,
        result=projected,
        usage=_usage(result, status),
    )


def status_of(result: RunResult, status: RunStatus | None) -> str:
    """Return which of the contract's statuses a run's end is; the first that holds."""
    if result.reason in _TIMEOUTS or (status is not None and status.timed_out):
        return "timed_out"
    if result.reason == _STRUCTURED_FAILED:
        return _STRUCTURED_FAILED
    if _was_blocked(result):
        return BLOCKED
    if result.state in (RunState.STOPPED, RunState.PAUSED):
        return "interrupted"
    return "completed" if result.success else "failed"


def _was_blocked(result: RunResult) -> bool:
    budget = result.tool_budget_state
    return budget is not None and budget.blocked_tool is not None


def _project(result: RunResult, text: str, *, is_structured: bool) -> tuple[dict[str, Any] | None, str | None]:
    """Return the result, or why there is none. A text stays a text, whatever it looks like."""
    if not is_structured:
        if not text:
            return None, "The run gave no text result."
        if len(text.encode("utf-8", "replace")) > MAX_DELEGATION_TEXT_BYTES:
            return None, "The text result exceeds 1 MiB."
        return {"kind": "text", "text": text}, None
    if result.structured is msgspec.UNSET:
        return None, "The run gave no structured result."
    if _depth(result.structured) > MAX_DELEGATION_VALUE_DEPTH:
        bound = MAX_DELEGATION_VALUE_DEPTH
        return None, f"The structured result is nested more than {bound} levels deep, and no message carries it."
    return {"kind": "structured", "value": result.structured}, None


def _depth(value: object) -> int:
    """Return how many containers lie in one another; an empty one counts too."""
    if isinstance(value, dict):
        return 1 + max((_depth(each) for each in cast("dict[str, object]", value).values()), default=0)
    if isinstance(value, list):
        return 1 + max((_depth(each) for each in cast("list[object]", value)), default=0)
    return 0


def _usage(result: RunResult, status: RunStatus | None) -> DelegationUsage | None:
    usage = result.usage
    if usage is None:
        return None
    return DelegationUsage(
        input=usage.input,
        output=usage.output,
        cache_read=usage.cache_read,
        cache_write=usage.cache_write,
        cost=usage.cost,
        turns=usage.turns,
        tool_calls=0 if status is None else status.tool_count,
        duration_ms=result.duration_ms,
    )
