"""Structured delegation served by a session's host: requests and cancellations in, attached runs, one answer each.

Owns the way between the bus, the state machine and the runs. What is answered, and when, is ``delegation_core``'s.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from pisub.client.bus import Bus, BusState, Incoming, Sender, Unsubscriber
from pisub.client.launching import wishes_of
from pisub.client.output import whole_output
from pisub.client.spawn import SpawnRequest
from pisub.clock import Clock, SystemClock
from pisub.errors import InvalidArgumentError, PisubError, RefusedError
from pisub.hosting import delegation_core as core
from pisub.hosting.delegation_progress import Snapshot
from pisub.hosting.delegation_request import Attempt, Delegation, Invalid, parse_request
from pisub.hosting.delegation_result import response_of
from pisub.hosting.payload import plain_payload
from pisub.protocol.delegation import (
    SUBAGENT_DELEGATION_CANCEL_EVENT,
    SUBAGENT_DELEGATION_REQUEST_EVENT,
    SUBAGENT_DELEGATION_UPDATE_EVENT,
    DelegationRequest,
    DelegationResponse,
    DelegationStarted,
    DelegationUpdate,
)
from pisub.protocol.delivery import Priority
from pisub.protocol.session import Authority

if TYPE_CHECKING:
    from pisub.client.api import Client
    from pisub.client.runs import Run
    from pisub.hosting.session import HostSession


class Delegations:
    """The delegations of one host, from ``start`` to ``stop``.

    Args:
        client: Whose session it is; runs are attached to its process.
        session: The host: while it does not hold the role, nothing is taken.
        clock: Time.
    """

    def __init__(self, client: Client, session: HostSession, *, clock: Clock | None = None) -> None:
        self._client = client
        self._bus: Bus = client.bus
        self._session = session
        self._clock = clock or SystemClock()
        self._core = core.DelegationCore()
        self._tasks: dict[Attempt, asyncio.Task[None]] = {}
        self._runs: dict[Attempt, Run] = {}
        self._aborted: set[Attempt] = set()
        self._stops: set[asyncio.Task[Any]] = set()
        self._waiting: dict[Attempt, list[asyncio.Future[DelegationResponse]]] = {}
        self._unsubscribers: list[Unsubscriber] = []

    async def start(self) -> None:
        """Take requests from now on, whenever the session's role is this host's."""
        scope = self._client.session_id
        self._bus.serve(DelegationRequest, self._on_call)
        self._unsubscribers.append(self._bus.on_state(self._on_state))
        for topic, handler in (
            (SUBAGENT_DELEGATION_REQUEST_EVENT, self._on_request),
            (SUBAGENT_DELEGATION_CANCEL_EVENT, self._on_cancel),
        ):
            self._unsubscribers.append(await self._bus.subscribe(topic, handler, scope=scope))

    async def stop(self) -> None:
        """Take no more, end what runs, answer nothing. Idempotent."""
        for unsubscribe in self._unsubscribers:
            unsubscribe()
        self._unsubscribers.clear()
        self._core.is_active = False
        self._reset()
        left = [*self._tasks.values(), *self._stops]
        for task in self._tasks.values():
            task.cancel()
        if left:
            await asyncio.wait(left)

    # What comes in. ----------------------------------------------------------------------------------------------

    def _on_request(self, incoming: Incoming) -> None:
        if self._session.is_host and _is_owner(incoming.sender.authority):
            self._feed(core.RequestCame(plain_payload(incoming.body)))

    def _on_cancel(self, incoming: Incoming) -> None:
        if self._session.is_host and _is_owner(incoming.sender.authority):
            self._feed(core.CancelCame(plain_payload(incoming.body)))

    async def _on_call(self, message: DelegationRequest, sender: Sender) -> DelegationResponse:
        await self._session.wait_for_turn()
        if not _is_owner(sender.authority):
            raise RefusedError("A child of a run delegates by spawn, not through its session's host.")
        payload = msgspec.to_builtins(message)
        payload.pop("type")
        match parse_request(payload):
            case Delegation(attempt=attempt):
                found = attempt
            case Invalid(attempt=Attempt() as attempt):
                found = attempt
            case Invalid(error=error):
                raise InvalidArgumentError(error, field="delegation")
            case _:
                raise InvalidArgumentError("requestId must be non-blank text without newlines.", field="requestId")
        future: asyncio.Future[DelegationResponse] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(found, []).append(future)
        self._feed(core.RequestCame(payload))
        if not future.done() and not self._core.is_running(found):
            self._waiting.pop(found, None)
            raise RefusedError(
                "This attempt was answered before: ask anew with another requestId.", code="attempt_settled"
            )
        return await future

    def _on_state(self, state: BusState) -> None:
        if state in (BusState.CONNECTED, BusState.RESYNC) and not self._session.is_host:
            self._reset()

    def _reset(self) -> None:
        self._feed(core.Reset())
        error = RefusedError("The session's host ended, and the delegation with it.", code="unavailable_context")
        waiting, self._waiting = self._waiting, {}
        for futures in waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(error)

    # What goes out. ----------------------------------------------------------------------------------------------

    def _feed(self, event: core.DelegationEvent) -> None:
        for effect in self._core.handle(event):
            self._carry_out(effect)

    def _carry_out(self, effect: core.DelegationEffect) -> None:
        match effect:
            case core.Publish(message):
                self._publish(message)
            case core.Launch(delegation):
                task = asyncio.get_running_loop().create_task(self._run(delegation))
                self._tasks[delegation.attempt] = task
                task.add_done_callback(lambda _: self._forget(delegation.attempt, task))
            case core.Abort(attempt):
                self._abort(attempt)
            case _:
                assert_never(effect)

    def _publish(self, message: DelegationStarted | DelegationUpdate | DelegationResponse) -> None:
        topic = str(message.__struct_config__.tag)
        priority = Priority.DROPPABLE if topic == SUBAGENT_DELEGATION_UPDATE_EVENT else Priority.NORMAL
        with contextlib.suppress(PisubError):  # no broker now: a caller who waits for the answer gets it all the same
            self._bus.publish(topic, message, scope=self._client.session_id, priority=priority)
        if isinstance(message, DelegationResponse) and message.owner_run_id is not None and message.node_id is not None:
            attempt = Attempt(message.request_id, message.owner_run_id, message.node_id)
            for future in self._waiting.pop(attempt, []):
                if not future.done():
                    future.set_result(message)

    def _forget(self, attempt: Attempt, task: asyncio.Task[None]) -> None:
        if self._tasks.get(attempt) is task:
            del self._tasks[attempt]

    # Runs. -------------------------------------------------------------------------------------------------------

    def _abort(self, attempt: Attempt) -> None:
        self._aborted.add(attempt)
        run = self._runs.get(attempt)
        if run is not None:
            self._stop(run)

    def _stop(self, run: Run) -> None:
        task = asyncio.get_running_loop().create_task(_stopped(run))
        self._stops.add(task)
        task.add_done_callback(self._stops.discard)

    async def _run(self, delegation: Delegation) -> None:
        attempt = delegation.attempt
        try:
            response = await self._carry(delegation)
        except Exception as error:  # noqa: BLE001  # whatever it is, the attempt is answered
            said = error.message if isinstance(error, PisubError) else f"{type(error).__name__}: {error}"
            response = core.answer(attempt, "failed", said)
        finally:
            self._runs.pop(attempt, None)
            was_aborted = attempt in self._aborted
            self._aborted.discard(attempt)
        if was_aborted and response.run_id is None:
            response = core.answer(attempt, "cancelled")
        self._feed(core.Ended(attempt, response))

    async def _carry(self, delegation: Delegation) -> DelegationResponse:
        attempt = delegation.attempt
        started_ms = self._clock.wall_ms()
        request = SpawnRequest(
            agent=delegation.agent,
            task=delegation.task,
            session_id=self._client.session_id,
            cwd=Path(delegation.cwd),
            label=attempt.node_id,
            timeout_ms=delegation.timeout_ms,
            attached=True,
            tool_budget=delegation.tool_budget,
            wishes=wishes_of(_wishes(delegation)),
        )
        run = await self._client.launch(request)
        self._runs[attempt] = run
        if attempt in self._aborted:
            self._stop(run)
        snapshot = Snapshot(attempt, run.id, started_ms)
        self._feed(core.Progressed(attempt, snapshot.update(self._clock.wall_ms())))
        async for event in run.events():
            snapshot.take(event)
            self._feed(core.Progressed(attempt, snapshot.update(self._clock.wall_ms())))
        view = await run.view()
        result = view.result or await run.result()
        text = await asyncio.to_thread(whole_output, self._client.layout, result)
        return response_of(attempt, result, view.status, text, is_structured=delegation.schema is not None)


async def _stopped(run: Run) -> None:
    with contextlib.suppress(PisubError, OSError):  # whatever it says, its end is waited for by who runs it
        await run.stop("The delegation was cancelled.")


def _is_owner(authority: int) -> bool:
    """Tell whether a sender is a person's or a program's: what descends from a run has no right to claim a role."""
    return bool(authority & Authority.CLAIM)


def _wishes(delegation: Delegation) -> dict[str, Any]:
    found = {
        "context": delegation.context,
        "model": delegation.model,
        "thinking": delegation.thinking,
        "skill": delegation.skill,
        "intercom_bridge": delegation.intercom_bridge,
        "output_schema": delegation.schema,
    }
    return {key: value for key, value in found.items() if value is not None}
