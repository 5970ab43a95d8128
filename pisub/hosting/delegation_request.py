"""What a request for a delegation may hold: the checks, in the contract's order (delegation 1.2, 1.3 and 1.5). Pure.

The first failure wins, and its answer carries whatever identity was valid by then. Types come from a stranger: a truth
is no number here, and nothing is converted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

import msgspec

from pisub.errors import InvalidArgumentError
from pisub.preflight.bridge import BridgeError, check_override
from pisub.protocol import limits
from pisub.protocol.limits import MAX_DURATION_MS
from pisub.runs.budgets import ToolBudget, check_budget
from pisub.schemas import check_schema
from pisub.utf8 import is_utf8

FIELDS: Final = (
    "requestId", "ownerRunId", "nodeId", "agent", "task", "context", "cwd", "model", "thinking", "timeoutMs",
    "toolBudget", "skill", "artifacts", "intercomBridge", "result",
)  # fmt: skip
THINKING: Final = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
#: One of these makes a payload a structured request.
_MARKS: Final = ("ownerRunId", "nodeId", "result", "version")


class Attempt(NamedTuple):
    """Who asks: one request of one owner's node."""

    request_id: str
    owner_run_id: str
    node_id: str

    @property
    def node(self) -> tuple[str, str]:
        """The logical identity: at most one attempt is active for it."""
        return self.owner_run_id, self.node_id


class Delegation(msgspec.Struct, frozen=True, kw_only=True):
    """A request that holds. ``schema`` is None for a text; unset options are None."""

    attempt: Attempt
    agent: str
    task: str
    context: str
    cwd: str
    model: str | None = None
    thinking: str | None = None
    timeout_ms: int | None = None
    tool_budget: ToolBudget | None = None
    skill: bool | str | tuple[str, ...] | None = None
    artifacts: bool | None = None
    intercom_bridge: dict[str, Any] | None = None
    schema: dict[str, Any] | None = None


class Invalid(msgspec.Struct, frozen=True, kw_only=True):
    """A structured request that does not hold, with the identity that was valid."""

    request_id: str
    owner_run_id: str | None = None
    node_id: str | None = None
    error: str

    @property
    def attempt(self) -> Attempt | None:
        """The whole identity, where all of it was valid."""
        if self.owner_run_id is None or self.node_id is None:
            return None
        return Attempt(self.request_id, self.owner_run_id, self.node_id)


class Legacy(msgspec.Struct, frozen=True, kw_only=True):
    """A payload of an older form: it is told that that is gone. ``echo`` are the fields that its answer repeats."""

    request_id: str
    error: str
    echo: dict[str, str] = {}


class _InvalidError(Exception):
    """One check failed; the text is the answer's error."""


def parse_request(payload: object) -> Delegation | Invalid | Legacy | None:
    """Return what a payload is; None is "nothing that could be answered".

    Args:
        payload: As decoded, without the wire's tag.
    """
    if not isinstance(payload, dict):
        return None
    given = cast("dict[object, object]", payload)
    if any(mark in given for mark in _MARKS):
        return _structured(given)
    return _legacy(given)


def parse_cancel(payload: object) -> Attempt | None:
    """Return what a cancellation is about; None where it is not exactly a whole identity."""
    if not isinstance(payload, dict):
        return None
    given = cast("dict[object, object]", payload)
    if set(given) != {"requestId", "ownerRunId", "nodeId"}:
        return None
    found = [_identity(given[name]) for name in ("requestId", "ownerRunId", "nodeId")]
    return None if None in found else Attempt(*cast("list[str]", found))


def _structured(given: dict[object, object]) -> Delegation | Invalid | None:
    request_id = _identity(given.get("requestId"))
    if request_id is None:
        return None
    valid: dict[str, str] = {}
    try:
        for name, key in (("ownerRunId", "owner_run_id"), ("nodeId", "node_id")):
            found = _identity(given.get(name))
            if found is None:
                bound = limits.MAX_DELEGATION_ID_UNITS
                raise _InvalidError(f"{name} must be non-blank text of at most {bound} characters without newlines")  # noqa: TRY301  # one way out
            valid[key] = found
        return _checked(given, Attempt(request_id, valid["owner_run_id"], valid["node_id"]))
    except _InvalidError as error:
        return Invalid(request_id=request_id, error=str(error), **valid)


def _checked(given: dict[object, object], attempt: Attempt) -> Delegation:
    for key in given:
        if key not in FIELDS:
            raise _InvalidError(f"Unsupported delegation field: {str(key)[:100]}")
    agent, task = _text(given, "agent"), _text(given, "task")
    context = given.get("context")
    if context not in ("fresh", "fork"):
        raise _InvalidError("context must be fresh or fork")
    cwd = _text(given, "cwd")
    model = _text(given, "model") if "model" in given else None
    timeout_ms = _timeout(given["timeoutMs"]) if "timeoutMs" in given else None
    try:
        budget = check_budget(given["toolBudget"], lowest=0) if "toolBudget" in given else None
    except ValueError as error:
        raise _InvalidError(f"toolBudget: {error}") from error
    skill = _skill(given["skill"]) if "skill" in given else None
    artifacts = given.get("artifacts", False)
    if not isinstance(artifacts, bool):
        raise _InvalidError("artifacts must be true or false")
    bridge = given.get("intercomBridge")
    try:
        if "intercomBridge" in given:
            check_override(bridge)
    except BridgeError as error:
        raise _InvalidError(str(error)) from error
    _bound(task, "task", limits.MAX_DELEGATION_TASK_BYTES, "1 MiB")
    _bound(cwd, "cwd", limits.MAX_DELEGATION_CWD_BYTES, "32 KiB")
    _bound(agent, "agent", limits.MAX_DELEGATION_NAME_BYTES, "1 KiB")
    if model is not None:
        _bound(model, "model", limits.MAX_DELEGATION_NAME_BYTES, "1 KiB")
    _bound_skill(skill)
    thinking = given.get("thinking")
    if "thinking" in given and thinking not in THINKING:
        raise _InvalidError(f"thinking must be one of {', '.join(THINKING)}")
    return Delegation(
        attempt=attempt,
        agent=agent,
        task=task,
        context=str(context),
        cwd=cwd,
        model=model,
        thinking=None if thinking is None else str(thinking),
        timeout_ms=timeout_ms,
        tool_budget=budget,
        skill=skill,
        artifacts=artifacts if "artifacts" in given else None,
        intercom_bridge=None if bridge is None else dict(cast("dict[str, Any]", bridge)),
        schema=_schema(given.get("result")),
    )


def _legacy(given: dict[object, object]) -> Legacy | None:
    request_id = given.get("requestId")
    if ("tasks" in given or "worktree" in given) and isinstance(request_id, str):
        return Legacy(
            request_id=request_id,
            error="Legacy prompt-template delegation of tasks/worktree was removed; use workflowScript.",
        )
    names = ("requestId", "agent", "task", "model", "cwd", "context")
    echo = {name: value for name in names if isinstance(value := given.get(name), str) and value}
    if len(echo) < len(names) or echo["context"] not in ("fresh", "fork"):
        return None
    return Legacy(
        request_id=echo["requestId"],
        error="Legacy prompt-template direct delegation was removed: say ownerRunId, nodeId and result.",
        echo={name: echo[name] for name in names[1:]},
    )


def _identity(value: object) -> str | None:
    if not isinstance(value, str) or not value.strip() or "\n" in value or "\r" in value or not is_utf8(value):
        return None
    units = len(value) + sum(1 for each in value if ord(each) > 0xFFFF)
    return value if units <= limits.MAX_DELEGATION_ID_UNITS else None


def _text(given: Mapping[object, object], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value.strip() or not is_utf8(value):
        raise _InvalidError(f"{name} must be non-blank text")
    return value


def _timeout(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _InvalidError("timeoutMs must be an integer >= 1")
    if value > MAX_DURATION_MS:
        raise _InvalidError(f"timeoutMs must be <= {MAX_DURATION_MS}")
    return value


def _skill(value: object) -> bool | str | tuple[str, ...]:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip() and is_utf8(value):
        return value
    if isinstance(value, list | tuple) and value:
        entries = cast("list[object] | tuple[object, ...]", value)
        if all(isinstance(each, str) and each.strip() and is_utf8(each) for each in entries):
            return tuple(cast("list[str]", list(entries)))
    raise _InvalidError("skill must be true, false, non-blank text, or a non-empty list of non-blank texts")


def _bound_skill(skill: bool | str | tuple[str, ...] | None) -> None:
    entries = (skill,) if isinstance(skill, str) else skill if isinstance(skill, tuple) else ()
    if len(entries) > limits.MAX_DELEGATION_SKILLS:
        raise _InvalidError(f"skill supports at most {limits.MAX_DELEGATION_SKILLS} entries")
    for each in entries:
        _bound(each, "skill entry", limits.MAX_DELEGATION_NAME_BYTES, "1 KiB")
    if sum(len(each.encode()) for each in entries) > limits.MAX_DELEGATION_SKILLS_BYTES:
        raise _InvalidError("skill entries exceed 64 KiB in aggregate")


def _bound(value: str, name: str, highest: int, said: str) -> None:
    if len(value.encode()) > highest:
        raise _InvalidError(f"{name} exceeds {said}")


def _schema(value: object) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        raise _InvalidError("result must be an object with kind text or structured")
    given = cast("dict[object, object]", value)
    kind = given.get("kind")
    if kind not in ("text", "structured"):
        raise _InvalidError("result.kind must be text or structured")
    for key in given:
        if key != "kind" and (kind == "text" or key != "schema"):
            raise _InvalidError(f"result.{str(key)[:100]} is not supported for kind {kind}")
    if kind == "text":
        return None
    schema = given.get("schema")
    if not isinstance(schema, dict):
        raise _InvalidError("result.schema must be a JSON Schema object")
    try:
        return check_schema(cast("object", schema), "result.schema")
    except InvalidArgumentError as error:
        raise _InvalidError(_schema_error(error.message)) from error


def _schema_error(text: str) -> str:
    if "bytes" in text:
        return "result.schema exceeds 64 KiB"
    reason = text.removeprefix("invalid outputSchema: ")
    if " is no JSON" in reason or "nested more than" in reason or "entries" in reason or "is no text" in reason:
        return f"result.schema must be plain JSON data: {reason}"
    return f"result.schema: {reason}"
