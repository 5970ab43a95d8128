"""Structured delegation on the bus: one leaf, one node of an owner's, one terminal answer. Names are the contract's.

Every message is published on the topic of its name, in the scope of the session; a request is also the body of a call
to the session's host. What a request may hold is ``pisub.hosting.delegation_request``'s to say.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import msgspec

from pisub.protocol.base import Message, Part

SUBAGENT_DELEGATION_REQUEST_EVENT: Final = "prompt-template:subagent:request"
SUBAGENT_DELEGATION_STARTED_EVENT: Final = "prompt-template:subagent:started"
SUBAGENT_DELEGATION_UPDATE_EVENT: Final = "prompt-template:subagent:update"
SUBAGENT_DELEGATION_RESPONSE_EVENT: Final = "prompt-template:subagent:response"
SUBAGENT_DELEGATION_CANCEL_EVENT: Final = "prompt-template:subagent:cancel"


class DelegationRequest(
    Message, frozen=True, kw_only=True, tag=SUBAGENT_DELEGATION_REQUEST_EVENT, forbid_unknown_fields=True
):
    """Have one agent do one task. Retransmission of an attempt is idempotent."""

    may_be_large: ClassVar[bool] = True  # a task has up to 1 MiB

    request_id: str
    owner_run_id: str
    node_id: str
    agent: str
    task: str
    context: str
    cwd: str
    model: str | None = None
    thinking: str | None = None
    timeout_ms: int | None = None
    tool_budget: dict[str, Any] | None = None
    skill: bool | str | tuple[str, ...] | None = None
    artifacts: bool | None = None
    intercom_bridge: dict[str, Any] | None = None
    #: ``{"kind": "text"}``, or ``{"kind": "structured", "schema": {…}}``.
    result: dict[str, Any]


class DelegationStarted(Message, frozen=True, kw_only=True, tag=SUBAGENT_DELEGATION_STARTED_EVENT):
    """The attempt is the node's, and is being launched."""

    request_id: str
    owner_run_id: str
    node_id: str


class ToolUse(Part, frozen=True, kw_only=True):
    """A tool that was used, and what on, in short."""

    tool: str
    args: str = ""


class DelegationUpdate(Message, frozen=True, kw_only=True, tag=SUBAGENT_DELEGATION_UPDATE_EVENT):
    """How far it is: a snapshot, which replaces the one before. Droppable."""

    request_id: str
    owner_run_id: str
    node_id: str
    run_id: str = ""
    current_tool: str = ""
    current_tool_args: str = ""
    recent_output: str = ""
    recent_output_lines: tuple[str, ...] = ()
    recent_tools: tuple[ToolUse, ...] = ()
    model: str = ""
    tool_count: int | None = None
    duration_ms: int | None = None
    tokens: int | None = None


class DelegationUsage(Part, frozen=True, kw_only=True):
    """What the child's models took, as it reports it; every number is there."""

    input: int
    output: int
    cache_read: int
    cache_write: int
    cost: float
    turns: int
    tool_calls: int
    duration_ms: int


class DelegationResponse(Message, frozen=True, kw_only=True, tag=SUBAGENT_DELEGATION_RESPONSE_EVENT):
    """How an attempt ended; once. ``status`` is one of the contract's eleven, and ``completed`` alone has a ``result``.

    To a payload of an older form it is the refusal: ``messages`` (none), ``isError`` and ``errorText``.
    """

    may_be_large: ClassVar[bool] = True  # a result has up to 1 MiB

    request_id: str
    owner_run_id: str | None = None
    node_id: str | None = None
    status: str = ""
    error: str | None = None
    run_id: str | None = None
    agent: str | None = None
    model: str | None = None
    thinking: str | None = None
    exit_code: int | None = None
    launch_contract_digest: str | None = None
    #: ``{"kind": "text", "text": …}``, or ``{"kind": "structured", "value": …}``, where null is a value.
    result: dict[str, Any] | None = None
    usage: DelegationUsage | None = None
    task: str | None = None
    context: str | None = None
    cwd: str | None = None
    messages: list[Any] | msgspec.UnsetType = msgspec.UNSET
    is_error: bool = False
    error_text: str = ""

    @property
    def value(self) -> Any:
        """The structured value of a completed delegation; None where there is none, and where it is null."""
        return None if self.result is None else self.result.get("value")

    @property
    def text(self) -> str:
        """The text of a completed delegation; '' where there is none."""
        return "" if self.result is None else str(self.result.get("text", ""))


class DelegationCancel(Message, frozen=True, kw_only=True, tag=SUBAGENT_DELEGATION_CANCEL_EVENT):
    """End exactly this attempt, also before its request has come."""

    request_id: str
    owner_run_id: str
    node_id: str


DelegationMessage = DelegationRequest | DelegationStarted | DelegationUpdate | DelegationResponse | DelegationCancel
