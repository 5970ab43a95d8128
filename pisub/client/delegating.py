"""Asking a session's host to run one leaf and give one answer: the caller's side of structured delegation."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pisub.client.bus import Bus, Incoming
from pisub.client.caller import CHILD_REFUSED, calling_run
from pisub.client.hosted import HostedSession
from pisub.errors import InvalidArgumentError, NotDeliveredError, PisubError, RefusedError
from pisub.ids import new_id
from pisub.protocol.checkpoint import HOST_ROLE
from pisub.protocol.delegation import (
    SUBAGENT_DELEGATION_CANCEL_EVENT,
    SUBAGENT_DELEGATION_UPDATE_EVENT,
    DelegationCancel,
    DelegationRequest,
    DelegationResponse,
    DelegationUpdate,
)

UpdateHandler = Callable[[DelegationUpdate], object]


class DelegationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller may say beside agent and task; None leaves it out.

    Attributes:
        schema: Of the structured value that is wanted; None is a text.
    """

    context: str = "fresh"
    owner_run_id: str | None = None
    node_id: str | None = None
    request_id: str | None = None
    schema: Mapping[str, Any] | None = None
    model: str | None = None
    thinking: str | None = None
    timeout_ms: int | None = None
    tool_budget: Mapping[str, Any] | None = None
    skill: bool | str | Sequence[str] | None = None
    artifacts: bool | None = None
    intercom_bridge: Mapping[str, Any] | None = None


class DelegatingSession(HostedSession):
    """One session on the bus, as far as what its host does for others goes.

    Attributes:
        bus: The connection.
    """

    async def delegate(
        self,
        agent: str,
        task: str,
        cwd: Path | str | None = None,
        *,
        on_update: UpdateHandler | None = None,
        **options: Any,
    ) -> DelegationResponse:
        """Have the session's host run one agent on one task, and return its one answer.

        The run is attached to the host's process. Whatever becomes of it is a status of the answer: ``completed`` with
        a result, or why there is none. Cancelling the waiting task cancels the attempt, also before it began. The same
        ``request_id``, ``owner_run_id`` and ``node_id`` never run twice.

        Args:
            agent: Name of an agent, as seen from ``cwd``.
            task: The prompt, at most 1 MiB.
            cwd: The run's working directory; None is this process's.
            on_update: Called with snapshots of how far it is; some may be left out.
            **options: Fields of ``DelegationOptions``, such as ``schema``, ``timeout_ms``, ``tool_budget``.

        Raises:
            InvalidArgumentError: An argument has no such name, or cannot be sent.
            RefusedError: This process is a run's (``child_refused``).
            RemoteError: The attempt was answered before (``attempt_settled``), or the host ended meanwhile
                (``unavailable_context``).
            OutcomeUnknownError: The host died.
        """
        unknown = sorted(options.keys() - set(DelegationOptions.__struct_fields__))
        if unknown:
            known = ", ".join(DelegationOptions.__struct_fields__)
            raise InvalidArgumentError(f"There is no argument {unknown[0]!r}; there are {known}.", field=unknown[0])
        caller = await asyncio.to_thread(calling_run, self.layout)
        if caller is not None:
            raise RefusedError(
                f"A child of run {caller} delegates by spawn, not through its session's host.",
                code=CHILD_REFUSED,
            )
        request = request_of(agent, task, cwd, DelegationOptions(**options))
        return await _ask_host(self.bus, self.session_id, request, on_update)


def request_of(agent: str, task: str, cwd: Path | str | None, options: DelegationOptions) -> DelegationRequest:
    """Return the message for a caller's arguments. What is not said is new: a node of its own, and an attempt.

    Raises:
        InvalidArgumentError: One of them cannot be sent at all.
    """
    given = {
        "requestId": options.request_id or new_id(),
        "ownerRunId": options.owner_run_id or new_id(),
        "nodeId": options.node_id or new_id(),
        "agent": agent,
        "task": task,
        "context": options.context,
        "cwd": str(Path.cwd() if cwd is None else Path(cwd).expanduser().absolute()),
        "model": options.model,
        "thinking": options.thinking,
        "timeoutMs": options.timeout_ms,
        "toolBudget": options.tool_budget,
        "skill": options.skill,
        "artifacts": options.artifacts,
        "intercomBridge": options.intercom_bridge,
        "result": {"kind": "text"} if options.schema is None else {"kind": "structured", "schema": options.schema},
    }
    try:
        return msgspec.convert(given, DelegationRequest)
    except msgspec.ValidationError as error:
        field = str(error).rpartition("$.")[2].rstrip("`") or None
        raise InvalidArgumentError(f"The delegation cannot be sent: {error}.", field=field) from error


async def _ask_host(
    bus: Bus, session_id: str, request: DelegationRequest, on_update: UpdateHandler | None
) -> DelegationResponse:
    """Send a request and wait for its one answer. Cancelling the waiting task cancels the attempt.

    Raises:
        PisubError: The broker, or the way to the host, ended in a way that leaves the outcome unknown.
    """
    unsubscribe: Callable[[], None] | None = None
    if on_update is not None:
        unsubscribe = await bus.subscribe(
            SUBAGENT_DELEGATION_UPDATE_EVENT, lambda came: _pass_on(came, request, on_update), scope=session_id
        )
    try:
        return await bus.call(
            f"role:{HOST_ROLE}", request, DelegationResponse, timeout_s=None, scope=session_id, idempotent=True
        )
    except NotDeliveredError:
        return DelegationResponse(
            request_id=request.request_id,
            owner_run_id=request.owner_run_id,
            node_id=request.node_id,
            status="unavailable_context",
            error="No active extension context: the session has no host. `pisub.host` in a program, or `pisub host`.",
        )
    except asyncio.CancelledError:
        with contextlib.suppress(PisubError):
            _cancel(bus, session_id, request)
        raise
    finally:
        if unsubscribe is not None:
            unsubscribe()


def _cancel(bus: Bus, session_id: str, request: DelegationRequest) -> None:
    """Have exactly this attempt ended, also before its request has come."""
    message = DelegationCancel(
        request_id=request.request_id, owner_run_id=request.owner_run_id, node_id=request.node_id
    )
    bus.publish(SUBAGENT_DELEGATION_CANCEL_EVENT, message, scope=session_id)


def _pass_on(came: Incoming, request: DelegationRequest, on_update: UpdateHandler) -> None:
    update = came.decode(DelegationUpdate)
    mine = (request.request_id, request.owner_run_id, request.node_id)
    if (update.request_id, update.owner_run_id, update.node_id) == mine:
        on_update(update)
