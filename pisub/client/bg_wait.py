"""The tool ``bg_wait``: a wait as an agent asks for it, with its parameters checked and its end told in words."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pisub.client.waiter import Waiter, WaitOutcome
from pisub.client.waiting import DEFAULT_TIMEOUT_MS, Identity, WaitEnd
from pisub.errors import InvalidArgumentError, PisubError
from pisub.protocol.limits import MAX_DURATION_MS
from pisub.record.reader import RunView

if TYPE_CHECKING:
    from pisub.client.api import Client

TOOL_NAME: Final = "bg_wait"

_DESCRIPTION: Final = (
    "Wait for background work of this session. Without arguments: until the first of what is active now has ended; "
    "with all: until all of it has; with id: until that one has. nonBlocking with an id returns at once, and you are "
    "told later. Work that needs somebody ends the wait too. Nothing is stopped by a wait that gives up."
)


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool returns to its agent."""

    text: str
    is_error: bool = False
    details: Mapping[str, Any] = {}


class _Parameters(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    id: str | None = None
    all: bool = False
    non_blocking: bool = False
    stop_on_attention: bool = True
    timeout_ms: int = DEFAULT_TIMEOUT_MS


def tool_definition(*, is_enabled: bool = True) -> dict[str, Any] | None:
    """Return the tool's name, description and JSON Schema; None where waiting is switched off."""
    if not is_enabled:
        return None
    return {
        "name": TOOL_NAME,
        "description": _DESCRIPTION,
        "input_schema": {
            "type": "object",
            "properties": {
                "id": {"type": "string", "description": "A run's id, or a beginning of it that no other has."},
                "all": {"type": "boolean"},
                "nonBlocking": {"type": "boolean"},
                "stopOnAttention": {
                    "type": "boolean",
                    "description": "Whether mere quiet ends the wait.",
                },
                "timeoutMs": {"type": "integer", "minimum": 1, "maximum": MAX_DURATION_MS},
            },
            "additionalProperties": False,
        },
    }


async def call_tool(
    client: Client,
    arguments: Mapping[str, Any],
    *,
    is_headless: bool = False,
    abort: asyncio.Event | None = None,
) -> ToolResult:
    """Carry a call of the tool out in the name of a client's session.

    Args:
        client: Whose session's work is waited for; its setting ``wait_tool_enabled`` counts.
        arguments: As the model gave them; what is wrong with them is in the result.
        is_headless: Nobody could be woken later.
        abort: Set to give up now.
    """
    return await bg_wait(
        Waiter(client.layout, client.session_id, bus=client.bus, work=client.background_work),
        client.session_id,
        arguments,
        is_enabled=client.settings.wait_tool_enabled,
        is_headless=is_headless,
        abort=abort,
    )


async def bg_wait(
    waiter: Waiter,
    session_id: str,
    parameters: Mapping[str, Any],
    *,
    is_enabled: bool = True,
    is_headless: bool = False,
    abort: asyncio.Event | None = None,
) -> ToolResult:
    """Carry the tool out. What goes wrong is a result too: an agent reads it.

    Args:
        waiter: Of the session.
        session_id: Whose work it is; '' where the agent has no session.
        parameters: As the agent gave them: ``id``, ``all``, ``nonBlocking``, ``stopOnAttention``, ``timeoutMs``.
        is_enabled: Otherwise it returns at once, and that is no error.
        is_headless: Nobody could be woken later.
        abort: Set to give up now.
    """
    if not is_enabled:
        return ToolResult(text="Waiting is switched off here; ends are told when they come.")
    try:
        # A time of nothing or less is not given (contract, integrations 5b).
        given = {key: value for key, value in parameters.items() if key != "timeoutMs" or not _is_nothing(value)}
        wanted = msgspec.convert(given, _Parameters)
        if not session_id:
            raise InvalidArgumentError("There is no session, so nothing can be waited for.")
        if wanted.non_blocking:
            return await _subscribe(waiter, wanted, is_headless=is_headless)
        outcome = await waiter.wait(
            wanted.id,
            is_all=wanted.all,
            timeout_ms=wanted.timeout_ms,
            stop_on_attention=wanted.stop_on_attention,
            abort=abort,
        )
    except (PisubError, msgspec.ValidationError) as error:
        return ToolResult(text=str(error), is_error=True)
    return _tell(outcome, wanted.id)


def _is_nothing(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value <= 0


async def _subscribe(waiter: Waiter, wanted: _Parameters, *, is_headless: bool) -> ToolResult:
    if wanted.id is None:
        raise InvalidArgumentError("nonBlocking needs an id.", field="id")
    if wanted.all:
        raise InvalidArgumentError("nonBlocking waits for one run: leave out all.", field="all")
    if is_headless:
        raise InvalidArgumentError("Without a user interface nobody is there to be woken.", field="nonBlocking")
    subscription = await waiter.subscribe(
        wanted.id, timeout_ms=wanted.timeout_ms, stop_on_attention=wanted.stop_on_attention
    )
    text = f"You will be woken when run {subscription.run_id} has ended."
    return ToolResult(text=text, details={"token": subscription.token})


def _tell(outcome: WaitOutcome, wanted: str | None) -> ToolResult:
    verdict = outcome.verdict
    details = {"completions": [completion_details(view) for view in outcome.views if view.result is not None]}
    active = ", ".join(map(_name, verdict.active))
    finished = ", ".join(map(_name, verdict.finished))
    match verdict.end:
        case WaitEnd.NOTHING:
            text = "Nothing is active: there is nothing to wait for." if wanted is None else f"{finished} has ended."
        case WaitEnd.COMPLETED:
            text = f"Ended: {finished}." + (f" Still active: {active}." if active else "")
        case WaitEnd.ATTENTION:
            text = f"Needs attention: {verdict.reason}. Still active: {active}."
        case WaitEnd.TIMEOUT | WaitEnd.ABORTED:
            how = "The time is up" if verdict.end is WaitEnd.TIMEOUT else "The wait was broken off"
            text = f"{how}. Still active: {active}. {verdict.reason}"
        case WaitEnd.UNCONFIRMED:
            text = f"Completion cannot be confirmed: {verdict.reason}"
    return ToolResult(text=text, is_error=verdict.end.is_error, details=details)


def _name(identity: Identity) -> str:
    return f"{identity.provider}/{identity.item}" if identity.provider else identity.item


def completion_details(view: RunView) -> dict[str, Any]:
    """Return what a wait says of a run that has ended; its text is not among it."""
    result = view.result
    assert result is not None
    return {
        "runId": view.run_id,
        "agent": result.agent,
        "mode": result.mode,
        "state": result.state.value,
        "success": result.success,
        "results": [
            {
                "agent": each.agent,
                "runId": view.run_id,
                "success": each.success,
                "outputState": "present" if result.output_bytes or each.output else "empty",
                "error": each.error,
                "artifactPaths": list(result.artifacts),
            }
            for each in result.results
        ],
    }
