"""A request of RPC v1, checked in the contract's order (runs 1.1, 1.3). Pure: plain data in, a call or a fault out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET

from pisub.protocol.rpc import RPC_METHODS, RPC_REPLY_PREFIX, RPC_VERSION, UNKNOWN_REQUEST, RpcFault, RpcReply

SCHEDULE_ACTIONS: Final = (
    "schedule.list",
    "schedule.show",
    "schedule.history",
    "schedule.pause",
    "schedule.resume",
    "schedule.run",
    "schedule.delete",
)
MODES: Final = ("steer", "follow_up", "auto")
_VIEWS: Final = ("fleet", "transcript")
_MAX_LINES: Final = 500
_MAX_MS: Final = 2_147_483_647
_INTERNAL: Final = (
    "runFanoutBudget",
    "runFanoutAdmitted",
    "workflowParentRunId",
    "workflowKey",
    "workflowChildAsyncId",
    "workflowAwaitAsync",
    "workflowParentDeadlineAt",
    "suppressRoutineResultIntercom",
)
_LEGACY: Final = ("tasks", "chain", "parallel", "concurrency", "chainDir")

Params = Mapping[str, Any]


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Which run is meant: by its id or a beginning of it, or by its directory; and which step of it."""

    id: str | None = None
    directory: str | None = None
    index: int | None = None

    @property
    def is_given(self) -> bool:
        """Whether a run is named at all."""
        return bool(self.id or self.directory)


class Ping(msgspec.Struct, frozen=True):
    """What is there?"""


class Status(msgspec.Struct, frozen=True):
    """How a session, or one run of it, stands."""

    target: Target
    view: str | None
    lines: int | None


class Manage(msgspec.Struct, frozen=True):
    """Something with a schedule."""

    action: str
    id: str | None


class Spawn(msgspec.Struct, frozen=True):
    """Start a detached run of an agent; or with ``agent`` '' a workflow script."""

    agent: str
    task: str
    params: Params


class Steer(msgspec.Struct, frozen=True):
    """Send a working run a message."""

    target: Target
    message: str
    mode: str


class Interrupt(msgspec.Struct, frozen=True):
    """Pause a run."""

    target: Target


class Stop(msgspec.Struct, frozen=True):
    """Stop a run."""

    target: Target


class Resume(msgspec.Struct, frozen=True):
    """Go on with a run that has ended."""

    target: Target
    message: str
    output: str | None


Call = Ping | Status | Manage | Spawn | Steer | Interrupt | Stop | Resume


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request that can be carried out."""

    id: str
    method: str
    call: Call

    def reply(self, data: Any) -> RpcReply:
        """Return the reply with a result."""
        return RpcReply(version=RPC_VERSION, request_id=self.id, method=self.method, success=True, data=data)

    def fault(self, code: str, message: str) -> RpcReply:
        """Return the reply with a failure."""
        return _fault(self.id, self.method, code, message)


class ParamsError(Exception):
    """A parameter is not allowed."""


def reply_topic(request_id: str) -> str:
    """Return the topic of a request's reply."""
    return RPC_REPLY_PREFIX + request_id


def parse_request(payload: object, *, has_session: bool) -> Request | RpcReply:
    """Check a request; return what is wanted, or the reply that says what is wrong.

    Args:
        payload: The request as plain data.
        has_session: Whether a session is there to act in.
    """
    if not isinstance(payload, dict):
        return _fault(UNKNOWN_REQUEST, None, "invalid_request", "A request is an object.")
    fields = cast("dict[str, Any]", payload)
    ident = fields.get("requestId")
    if not isinstance(ident, str) or not ident.strip() or "\r" in ident or "\n" in ident:
        return _fault(UNKNOWN_REQUEST, None, "invalid_request", "requestId is a text that is not blank, on one line.")
    method = fields.get("method")
    known = method if isinstance(method, str) and method in RPC_METHODS else None
    version = fields.get("version")
    if isinstance(version, bool) or not isinstance(version, int | float) or version != RPC_VERSION:
        return _fault(ident, known, "unsupported_version", f"Only version {RPC_VERSION} is spoken here.")
    if known is None:
        return _fault(ident, None, "unsupported_method", f"method is one of {', '.join(RPC_METHODS)}.")
    if known == "ping":
        return Request(id=ident, method=known, call=Ping())
    if not has_session:
        return _fault(ident, known, "no_active_session", "No session is active here.")
    params = fields.get("params", {})
    try:
        if not isinstance(params, dict):
            raise ParamsError("params must be an object.")  # noqa: TRY301  # one way out for all of them
        return Request(id=ident, method=known, call=_PARSERS[known](cast("Params", params)))
    except ParamsError as error:
        return _fault(ident, known, "invalid_params", str(error))


def _fault(ident: str, method: str | None, code: str, message: str) -> RpcReply:
    return RpcReply(
        version=RPC_VERSION,
        request_id=ident,
        method=UNSET if method is None else method,
        success=False,
        error=RpcFault(code=code, message=message),
    )


# Methods. ------------------------------------------------------------------------------------------------------------


def _status(params: Params) -> Status:
    target = _target(params)
    view = _choice(params, "view", _VIEWS)
    lines = _integer(params, "lines", lowest=1, highest=_MAX_LINES)
    return Status(target, view, lines)


def _manage(params: Params) -> Manage:
    action = params.get("action")
    if action not in SCHEDULE_ACTIONS:
        raise ParamsError(f"action must be one of {', '.join(SCHEDULE_ACTIONS)}.")
    ident = params.get("id")
    if ident is not None and (not isinstance(ident, str) or not ident.strip()):
        raise ParamsError("id must be a text that is not blank.")
    if ident is None and action != "schedule.list":
        raise ParamsError(f"{action} requires id.")
    return Manage(action, None if ident is None else ident.strip())


def _spawn(params: Params) -> Spawn:
    if params.get("async") is False:
        raise ParamsError("spawn starts detached async runs only: async cannot be false.")
    if "action" in params:
        raise ParamsError("spawn does not accept management actions.")
    _refuse_shapes(params)
    script, path = params.get("workflowScript"), params.get("workflowScriptPath")
    has_script = script is not None or path is not None
    if has_script and ("agent" in params or "task" in params):
        raise ParamsError("workflowScript does not go with agent or task.")
    _integer(params, "timeoutMs", lowest=1, highest=_MAX_MS)
    if has_script:
        chosen = script if script is not None else path
        if not isinstance(chosen, str) or not chosen.strip():
            raise ParamsError("workflowScript must be a text that is not blank.")
        return Spawn("", "", params)
    agent, task = params.get("agent"), params.get("task")
    if not isinstance(agent, str) or not agent.strip():
        raise ParamsError("spawn requires agent, or workflowScript.")
    if not isinstance(task, str):
        raise ParamsError("task must be a text.")
    return Spawn(agent.strip(), task, params)


def _refuse_shapes(params: Params) -> None:
    """Refuse what no program may say from outside, and what is said differently now, in the contract's order."""
    isolation = params.get("isolation")
    if isolation is not None and isolation not in ("none", "worktree"):
        raise ParamsError("isolation must be none or worktree.")
    if isolation is not None and "worktree" in params:
        raise ParamsError("isolation does not go with worktree.")
    for field in _INTERNAL:
        if field in params:
            raise ParamsError(f"{field} is an internal field.")
    if "clarify" in params:
        raise ParamsError("clarify is not supported: the run is detached.")
    for field in ("chainName", "resume", "step"):
        if field in params:
            raise ParamsError(f"{field} is not supported by spawn.")
    config = params.get("config")
    if isinstance(config, dict) and "steps" in config:
        raise ParamsError("config.steps is not supported by spawn.")
    for field in _LEGACY:
        if field in params:
            raise ParamsError(f"{field} is not supported: use a workflow script.")


def _steer(params: Params) -> Steer:
    message = _message(params)
    target = _required_target(params)
    return Steer(target, message, _choice(params, "mode", MODES) or "steer")


def _interrupt(params: Params) -> Interrupt:
    return Interrupt(_target(params))


def _stop(params: Params) -> Stop:
    return Stop(_target(params))


def _resume(params: Params) -> Resume:
    message = _message(params)
    target = _required_target(params)
    output = params.get("output")
    if output is not None and (not isinstance(output, str) or not output.strip()):
        raise ParamsError("output must be a text that is not blank.")
    if params.get("outputMode") not in (None, "file-only"):
        raise ParamsError("outputMode must be file-only.")
    return Resume(target, message, None if output is None else output.strip())


_PARSERS: Final[Mapping[str, Callable[[Params], Call]]] = {
    "status": _status,
    "manage": _manage,
    "spawn": _spawn,
    "steer": _steer,
    "interrupt": _interrupt,
    "stop": _stop,
    "resume": _resume,
}


# Fields. -------------------------------------------------------------------------------------------------------------


def _message(params: Params) -> str:
    message = params.get("message")
    if not isinstance(message, str) or not message.strip():
        raise ParamsError("message must be a text that is not blank.")
    return message.strip()


def _required_target(params: Params) -> Target:
    if not any(params.get(field) for field in ("id", "runId", "dir")):
        raise ParamsError("One of id, runId and dir is required.")
    return _target(params)


def _target(params: Params) -> Target:
    problems = [
        f"{field} must be a text"
        for field in ("id", "runId", "dir")
        if params.get(field) is not None and not isinstance(params[field], str)
    ]
    if problems:
        raise ParamsError("; ".join(problems[:4]) + ".")
    index = _integer(params, "index", lowest=0, highest=2**53 - 1)
    ident = params.get("id") or params.get("runId") or None
    return Target(id=ident, directory=params.get("dir") or None, index=index)


def _integer(params: Params, field: str, *, lowest: int, highest: int) -> int | None:
    value = params.get(field)
    if value is None:
        return None
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not is_whole or not lowest <= value <= highest:
        raise ParamsError(f"{field} must be a whole number from {lowest} to {highest}.")
    return int(value)


def _choice(params: Params, field: str, allowed: tuple[str, ...]) -> str | None:
    value = params.get(field)
    if value is None:
        return None
    if value not in allowed:
        raise ParamsError(f"{field} must be one of {', '.join(allowed)}.")
    return str(value)
