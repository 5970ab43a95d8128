"""The tool ``bg_wait``: a wait as an agent asks for it, with its parameters checked and its end told in words."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from pisub.client.waiter import Waiter, WaitOutcome
from pisub.client.waiting import DEFAULT_TIMEOUT_MS, Identity, WaitEnd
from pisub.errors import InvalidArgumentError, PisubError
from pisub.ids import new_id
from pisub.record.layout import Layout
from pisub.record.reader import RunView
from pisub.record.subscriptions import WaitSubscription, subscribe

_YES: Final = frozenset({"1", "true", "yes", "on", "enabled"})
_NO: Final = frozenset({"0", "false", "no", "off", "disabled"})


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


def is_wait_tool_enabled(configured: bool | None, variable: str | None) -> bool:
    """Tell whether the tool may be used; the variable (``PI_SUBAGENT_WAIT_TOOL_ENABLED``) wins over the configuration.

    Raises:
        InvalidArgumentError: The variable says neither yes nor no.
    """
    if variable is None:
        return configured is not False
    word = variable.strip().lower()
    if word not in _YES | _NO:
        raise InvalidArgumentError(
            f"PI_SUBAGENT_WAIT_TOOL_ENABLED is {variable[:40]!a}: use true or false.",
            field="PI_SUBAGENT_WAIT_TOOL_ENABLED",
        )
    return word in _YES


async def bg_wait(
    waiter: Waiter,
    layout: Layout,
    session_id: str,
    parameters: Mapping[str, Any],
    *,
    now_ms: int,
    is_enabled: bool = True,
    is_headless: bool = False,
    abort: asyncio.Event | None = None,
) -> ToolResult:
    """Carry the tool out. What goes wrong is a result too: an agent reads it.

    Args:
        waiter: Of the session.
        layout: The record.
        session_id: Whose work it is; '' where the agent has no session.
        parameters: As the agent gave them: ``id``, ``all``, ``nonBlocking``, ``stopOnAttention``, ``timeoutMs``.
        now_ms: Unix time in milliseconds.
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
            return await _subscribe(waiter, layout, session_id, wanted, now_ms=now_ms, is_headless=is_headless)
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


async def _subscribe(
    waiter: Waiter, layout: Layout, session_id: str, wanted: _Parameters, *, now_ms: int, is_headless: bool
) -> ToolResult:
    if wanted.id is None:
        raise InvalidArgumentError("nonBlocking needs an id.", field="id")
    if wanted.all:
        raise InvalidArgumentError("nonBlocking waits for one run: leave out all.", field="all")
    if is_headless:
        raise InvalidArgumentError("Without a user interface nobody is there to be woken.", field="nonBlocking")
    run_id = await asyncio.to_thread(waiter.resolve, wanted.id)
    subscription = WaitSubscription(
        token=new_id(),
        session_id=session_id,
        run_id=run_id,
        requested_id=wanted.id,
        created_at=now_ms,
        expires_at=now_ms + wanted.timeout_ms,
        stop_on_attention=wanted.stop_on_attention,
    )
    await asyncio.to_thread(subscribe, layout, subscription)
    return ToolResult(text=f"You will be woken when run {run_id} has ended.", details={"token": subscription.token})


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
