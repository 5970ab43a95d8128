"""What a program wants to know from a session's host, where there is one: a base of ``Client``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from msgspec import UNSET

from pisub.agents.discovery import AgentFinder
from pisub.client.bus import Bus
from pisub.client.external_runs import RemoteExternalRuns
from pisub.client.liveness import SILENT_HOST, Life, forms_of, read_lives
from pisub.client.rules import SessionRules
from pisub.clock import SystemClock
from pisub.config import Settings
from pisub.errors import NotDeliveredError, PisubError, RemoteError
from pisub.ids import new_id
from pisub.protocol.checkpoint import HOST_ROLE
from pisub.protocol.rpc import RPC_VERSION, RpcFault, RpcReply, RpcRequest
from pisub.protocol.seams import SessionLife, SessionLive
from pisub.record.layout import Layout

#: A host that has not answered in this time is busy, and its session is live.
ANSWER_S: Final = 2.0
RPC_S: Final = 30.0


class HostedSession(SessionRules):
    """One session on the bus.

    Attributes:
        bus: The connection.
        external_runs: Work of others, shown by the session's host beside its runs.
    """

    def __init__(self, *, session_id: str, settings: Settings, layout: Layout, bus: Bus) -> None:
        super().__init__(session_id=session_id, settings=settings, layout=layout, finder=AgentFinder(settings))
        self.bus = bus
        self.external_runs = RemoteExternalRuns(bus, session_id)

    async def session_is_live(self, session_id: str | None = None, *, session_file: str | None = None) -> bool:
        """Tell whether a session has work that somebody must be there for: a program that reclaims sessions keeps it.

        It is, while a run of it is queued or running, at whatever depth, or its host holds back ends to tell them in a
        group. It is not for what has ended, waits in the background, or schedules. What cannot be found out is a yes.

        Args:
            session_id: The session's id; None with ``session_file`` alone, and without both this client's session.
            session_file: The path of the session's file, where its runs may be recorded under that.

        Raises:
            InvalidArgumentError: A text can be no session's id.
        """
        forms = forms_of(session_id, session_file) or [self.session_id]
        now_ms = SystemClock().wall_ms()
        lives = await asyncio.to_thread(lambda: read_lives(self.layout, forms, now_ms=now_ms))
        if any(life.is_live for life in lives):
            return True
        return any(life.is_live for life in [await ask_host(self.bus, form) for form in forms])

    async def rpc(self, method: str, params: Mapping[str, Any] | None = None, *, timeout_s: float = RPC_S) -> Any:
        """Have the session's host do something, by RPC v1 (docs/rpc.md); return the reply's data.

        Args:
            method: ``ping``, ``status``, ``manage``, ``spawn``, ``steer``, ``interrupt``, ``stop`` or ``resume``.
            params: Its parameters, by the names of the protocol.
            timeout_s: How long to wait for the reply.

        Raises:
            RemoteError: The host's refusal, with its ``code``.
            NotDeliveredError: The session has no host.
            CallTimeoutError: No reply in time.
        """
        return await call_rpc(self.bus, self.session_id, method, params, timeout_s=timeout_s)


async def call_rpc(
    bus: Bus, session_id: str, method: str, params: Mapping[str, Any] | None = None, *, timeout_s: float = RPC_S
) -> Any:
    """Do what ``HostedSession.rpc`` does, for whoever has a bus alone."""
    request = RpcRequest(
        version=RPC_VERSION, request_id=new_id(), method=method, params=UNSET if params is None else dict(params)
    )
    reply = await bus.call(f"role:{HOST_ROLE}", request, RpcReply, timeout_s=timeout_s, scope=session_id)
    if isinstance(reply.error, RpcFault):
        raise RemoteError(reply.error.message, code=reply.error.code)
    return reply.data


async def ask_host(bus: Bus, session_id: str) -> Life:
    """Ask a session's host whether it is live; nobody there is a no, and anything else that is no answer a yes."""
    try:
        answer = await bus.call(
            f"role:{HOST_ROLE}", SessionLive(), SessionLife, timeout_s=ANSWER_S, scope=session_id, idempotent=True
        )
    except NotDeliveredError:
        return Life(session_id=session_id)
    except PisubError as error:
        return Life(session_id=session_id, reasons=(SILENT_HOST,), problems=(error.message,))
    return Life(session_id=session_id, reasons=answer.reasons if answer.is_live else ())
