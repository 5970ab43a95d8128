"""RPC v1 served by a session's host: each request answered once, whatever becomes of it.

Owns the way between the bus and the session. What may be asked is ``rpc_request``'s. Runs of another session are never
named, and a request carries no rights: who may control runs is the broker's and the record's to say.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, assert_never

import msgspec

from pisub.client.bus import Bus, Incoming, Sender, Unsubscriber
from pisub.client.interrupting import request_interrupt
from pisub.client.resuming import ResumeRequest, submit_resume
from pisub.client.spawn import launch_submitted
from pisub.client.status import StatusQuery
from pisub.client.stopping import request_stop
from pisub.client.views import current_view, current_views
from pisub.client.waiting import pick_id
from pisub.clock import Clock, SystemClock
from pisub.errors import PisubError, UnknownRunError
from pisub.hosting import rpc_request as rpc
from pisub.hosting.payload import plain_payload
from pisub.ids import is_id
from pisub.launchers.local import LocalLauncher
from pisub.preflight.plan import Wishes
from pisub.protocol.delivery import Priority
from pisub.protocol.fleet import SNAPSHOT_KIND
from pisub.protocol.rpc import (
    RPC_METHODS,
    RPC_READY_TOPIC,
    RPC_REPLY_PREFIX,
    RPC_REQUEST_TOPIC,
    RPC_VERSION,
    UNKNOWN_REQUEST,
    RpcFault,
    RpcReady,
    RpcReply,
    RpcRequest,
)
from pisub.protocol.runs import (
    ASYNC_COMPLETE_TOPIC,
    PROCESS_TERMINAL_TOPIC,
    InboxChanged,
    InboxRead,
    RunState,
    runner_address,
)
from pisub.protocol.session import Authority
from pisub.protocol.version import LIFECYCLE_ARTIFACT_VERSION
from pisub.record.dirs import list_names
from pisub.record.reader import RunView
from pisub.runs.steering import Mode

if TYPE_CHECKING:
    from pisub.client.api import Client
    from pisub.hosting.session import HostSession

#: Shorter beginnings of an id are no name of a run (contract, runs 3.7).
_MIN_PREFIX: Final = 8
#: For a runner's word that it has looked.
_NUDGE_S: Final = 5.0
_CAPABILITIES: Final[dict[str, Any]] = {
    "status": True,
    "managementActions": list(rpc.SCHEDULE_ACTIONS),
    "fleetStatus": {"version": 1},
    "asyncStatusSnapshot": {"kind": SNAPSHOT_KIND, "version": 1},
    "asyncSpawn": True,
    "steer": True,
    "nonRecoveringSteer": True,
    "interrupt": True,
    "stop": True,
    "resume": True,
    "launchResolvedExtensions": {"version": 1, "source": "launch-resolved"},
    "processTerminalProof": {"version": 1, "lifecycleArtifactVersion": LIFECYCLE_ARTIFACT_VERSION},
    "statusProjection": {"version": 1, "untargeted": "in-memory-when-ready", "targeted": "executor"},
}
_EVENTS: Final = {
    "ready": RPC_READY_TOPIC,
    "request": RPC_REQUEST_TOPIC,
    "replyPrefix": RPC_REPLY_PREFIX,
    "asyncComplete": ASYNC_COMPLETE_TOPIC,
    "processTerminal": PROCESS_TERMINAL_TOPIC,
}
#: Of a spawn's params: those that go on as they are, by the name that the library has for them.
_WISHES: Final = {
    "context": "context",
    "model": "model",
    "thinking": "thinking",
    "output": "output",
    "outputMode": "output_mode",
    "skill": "skill",
}


class _StopRefusedError(Exception):
    """A result with one of the codes that are only a stop's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class RpcService:
    """The requests of one host, from ``start`` to ``stop``.

    Args:
        client: Whose session it is.
        session: The host: while it does not hold the role, it answers that no session is active.
        clock: Time.
    """

    def __init__(self, client: Client, session: HostSession, *, clock: Clock | None = None) -> None:
        self._client = client
        self._bus: Bus = client.bus
        self._session = session
        self._layout = client.layout
        self._loop = asyncio.get_running_loop()
        self._clock = clock or SystemClock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsubscribers: list[Unsubscriber] = []

    async def start(self) -> None:
        """Answer from now on, and say so."""
        self._bus.serve(RpcRequest, self._on_call, reply_topic=_topic_of)
        scope = self._client.session_id
        self._unsubscribers.append(await self._bus.subscribe(RPC_REQUEST_TOPIC, self._on_request, scope=scope))

    async def announce(self) -> None:
        """Say that requests are answered, once this host holds the role."""
        await self._session.wait_for_turn()
        self._bus.publish(RPC_READY_TOPIC, msgspec.convert(self._about(), RpcReady), scope=self._client.session_id)

    async def stop(self) -> None:
        """Answer no more. Idempotent."""
        for unsubscribe in self._unsubscribers:
            unsubscribe()
        self._unsubscribers.clear()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # What comes in. ----------------------------------------------------------------------------------------------

    async def _on_call(self, message: RpcRequest, sender: Sender) -> RpcReply:
        payload = {key: value for key, value in msgspec.to_builtins(message).items() if key != "type"}
        return await self._answer(payload, sender)

    def _on_request(self, incoming: Incoming) -> None:
        if not self._session.is_host:
            return  # the host answers
        self._begin(self._answer_aloud(incoming))

    async def _answer_aloud(self, incoming: Incoming) -> None:
        reply = await self._answer(plain_payload(incoming.body), incoming.sender)
        topic = rpc.reply_topic(reply.request_id)
        try:
            self._bus.publish(topic, reply, scope=self._client.session_id, priority=Priority.TERMINAL)
        except PisubError as error:  # the topic, or the reply, is too long
            short = RpcReply(
                version=RPC_VERSION,
                request_id=reply.request_id[:64],
                success=False,
                error=RpcFault(code="execution_failed", message=error.message),
            )
            self._bus.publish(rpc.reply_topic(UNKNOWN_REQUEST), short, scope=self._client.session_id)

    async def _answer(self, payload: object, sender: Sender) -> RpcReply:
        request = rpc.parse_request(payload, has_session=self._session.is_host)
        if isinstance(request, RpcReply):
            return request
        is_look = isinstance(request.call, rpc.Ping | rpc.Status)
        if not is_look and not sender.authority & Authority.CONTROL_RUNS:
            why = "A child of a run controls what it started by the library, not by RPC."
            return request.fault("execution_failed", why)
        try:
            return request.reply(await self._do(request.call))
        except rpc.ParamsError as error:
            return request.fault("invalid_params", str(error))
        except _StopRefusedError as error:
            return request.fault(error.code, str(error))
        except PisubError as error:
            return request.fault("execution_failed", error.message)
        except OSError as error:
            return request.fault("execution_failed", f"The record cannot be used: {error.strerror}.")

    # What is done. -----------------------------------------------------------------------------------------------

    async def _do(self, call: rpc.Call) -> Any:
        match call:
            case rpc.Ping():
                return self._about()
            case rpc.Status():
                return await self._status(call)
            case rpc.Manage(action):
                raise PisubError(f"{action}: there are no schedules in this version.", code="execution_failed")
            case rpc.Spawn():
                return await self._spawn(call)
            case rpc.Steer():
                return await self._steer(call)
            case rpc.Interrupt(target):
                return await asyncio.to_thread(self._interrupt, target)
            case rpc.Stop(target):
                return await asyncio.to_thread(self._stop, target)
            case rpc.Resume():
                return await asyncio.to_thread(self._resume, call)
            case _:
                assert_never(call)

    def _about(self) -> dict[str, Any]:
        session = {"cwd": str(Path.cwd()), "sessionId": self._client.session_id, "sessionFile": None}
        return {
            "version": RPC_VERSION,
            "methods": list(RPC_METHODS),
            "capabilities": _CAPABILITIES,
            "events": dict(_EVENTS),
            "session": session if self._session.is_host else {},
        }

    async def _status(self, call: rpc.Status) -> dict[str, Any]:
        run_id = await asyncio.to_thread(self._run_id, call.target) if call.target.is_given else None
        query = StatusQuery(run_id=run_id, index=call.target.index, view=call.view, lines=call.lines)
        found = await self._session.live.status(query)
        details = {} if found.details is None else {"details": found.details}
        return {
            "text": found.text,
            **details,
            "fleet": msgspec.to_builtins(found.fleet),
            "asyncSnapshot": msgspec.to_builtins(found.snapshot),
        }

    async def _spawn(self, call: rpc.Spawn) -> dict[str, Any]:
        if not call.agent:
            raise PisubError("Workflow scripts cannot be run in this version.", code="execution_failed")
        wishes = {name: call.params[key] for key, name in _WISHES.items() if call.params.get(key) is not None}
        run = await self._client.spawn(
            call.agent,
            call.task,
            call.params.get("cwd"),
            label=call.params.get("label") or "",
            timeout_ms=call.params.get("timeoutMs"),
            **wishes,
        )
        return self._started(run.id, f"Async: {call.agent} [{run.id}]")

    async def _steer(self, call: rpc.Steer) -> dict[str, Any]:
        run_id = await asyncio.to_thread(self._run_id, call.target)
        receipt = await self._client.run(run_id).steer(call.message, Mode(call.mode))
        return {
            "text": f"Steering {receipt.state} for {run_id}.",
            "details": {"steering": msgspec.to_builtins(receipt)},
        }

    def _interrupt(self, target: rpc.Target) -> dict[str, Any]:
        now_ms = self._clock.wall_ms()
        if target.is_given:
            view = current_view(self._layout, self._run_id(target), now_ms=now_ms)
        else:
            views = current_views(self._layout, now_ms=now_ms, session_id=self._client.session_id)
            running = (each for each in views if each.state is RunState.RUNNING and each.spec.parent_run_id is None)
            found = next(running, None)
            if found is None:
                raise PisubError("No run of this session works now.", code="execution_failed")
            view = found
        request_interrupt(self._layout, view, source="rpc-interrupt", reason="interrupted by RPC", now_ms=now_ms)
        self._nudge(view.run_id)
        return {"text": f"Interrupt requested for {view.run_id}."}

    def _stop(self, target: rpc.Target) -> dict[str, Any]:
        view = self._view_to_stop(target)
        request_stop(
            self._layout, view.run_id, source="rpc-stop", reason="stopped by RPC", now_ms=self._clock.wall_ms()
        )
        self._nudge(view.run_id)
        return {
            "runId": view.run_id,
            "asyncDir": str(self._layout.run(view.run_id).dir),
            "previousState": "running",
            "state": "stopping",
            "message": f"Stop requested for {view.run_id}.",
        }

    def _view_to_stop(self, target: rpc.Target) -> RunView:
        try:
            run_id = self._run_id(target)
            view = current_view(self._layout, run_id, now_ms=self._clock.wall_ms())
        except UnknownRunError as error:
            raise _StopRefusedError("not_found", error.message) from error
        if view.status is None and not view.state.is_terminal:
            raise _StopRefusedError("not_found", f"Run {run_id} has no status yet.")
        if view.state is not RunState.RUNNING:
            raise _StopRefusedError(
                "invalid_state", f"Run {run_id} is {view.state}: only one that is running can be stopped."
            )
        return view

    def _resume(self, call: rpc.Resume) -> dict[str, Any]:
        request = ResumeRequest(
            run_id=self._run_id(call.target),
            message=call.message,
            session_id=self._client.session_id,
            wishes=Wishes() if call.output is None else Wishes(output=call.output, output_mode="file-only"),
        )
        submission = submit_resume(self._client.settings, self._layout, request)
        launch_submitted(self._layout, submission, LocalLauncher(self._client.settings))
        return self._started(submission.spec.run_id, f"Resumed {request.run_id} as {submission.spec.run_id}.")

    def _started(self, run_id: str, text: str) -> dict[str, Any]:
        details = {
            "runId": run_id,
            "asyncDir": str(self._layout.run(run_id).dir),
            "sessionId": self._client.session_id,
        }
        return {"text": text, "details": details}

    # Which run. --------------------------------------------------------------------------------------------------

    def _run_id(self, target: rpc.Target) -> str:
        """Return the run of this session that is meant.

        Raises:
            ParamsError: The id is no id, begins several, or the directory is no run's.
            UnknownRunError: This session has no such run.
        """
        text = target.id
        if text is None and target.directory is not None:
            path = Path(target.directory)
            if path.parent != self._layout.runs or not is_id(path.name):
                raise rpc.ParamsError(f"dir must be a run's directory, directly below {self._layout.runs}.")
            text = path.name
        if text is None:
            raise rpc.ParamsError("One of id, runId and dir is required.")
        if not text.isascii() or not text.isalnum() or len(text) < _MIN_PREFIX:
            raise rpc.ParamsError(f"{text[:40]!a} is no run's id, nor {_MIN_PREFIX} characters of one.")
        try:
            return pick_id(text, list_names(self._layout.session(self._client.session_id).runs))
        except UnknownRunError as error:
            raise UnknownRunError(f"{error.message} It may belong to another session.") from None
        except PisubError as error:
            raise rpc.ParamsError(error.message) from error

    def _nudge(self, run_id: str) -> None:
        """Have the runner look at its inbox. From a thread: the loop sends."""
        self._loop.call_soon_threadsafe(self._begin, self._tell(run_id))

    async def _tell(self, run_id: str) -> None:
        with contextlib.suppress(PisubError):  # it looks by itself every few seconds
            message = InboxChanged(run_id=run_id)
            await self._bus.call(runner_address(run_id), message, InboxRead, timeout_s=_NUDGE_S, idempotent=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work, name="pisub-rpc")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _topic_of(message: RpcRequest) -> str:
    ident = message.request_id
    is_safe = isinstance(ident, str) and ident.strip() and "\r" not in ident and "\n" not in ident
    return rpc.reply_topic(ident if is_safe else UNKNOWN_REQUEST)
