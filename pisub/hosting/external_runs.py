"""External runs of a session, told of by clients of its host. The records are ``pisub.fleet.external``'s."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from pisub.client.bus import Bus, Sender
from pisub.errors import InvalidArgumentError, RefusedError
from pisub.fleet.external import ExternalRun, ExternalRuns
from pisub.protocol.seams import (
    ExternalRunAnswer,
    ExternalRunList,
    ExternalRunRegister,
    ExternalRunUnregister,
    ExternalRunUpdate,
)


def serve_external_runs(bus: Bus, runs: ExternalRuns, session_id: str, is_host: Callable[[], bool]) -> None:
    """Answer clients, for this session alone."""

    def check() -> None:
        if not is_host():
            raise RefusedError("This process is not the session's host.")

    def register(message: ExternalRunRegister, _: Sender) -> ExternalRunAnswer:
        check()
        if message.run.get("sessionId") != session_id:
            raise InvalidArgumentError(f"sessionId must be {session_id!a}, this host's.", field="sessionId")
        return _answer(runs.register(message.run))

    def update(message: ExternalRunUpdate, _: Sender) -> ExternalRunAnswer:
        check()
        return _answer(runs.update(session_id, message.id, message.patch))

    def unregister(message: ExternalRunUnregister, _: Sender) -> ExternalRunAnswer:
        check()
        return ExternalRunAnswer(is_found=runs.unregister(session_id, message.id))

    def shown(message: ExternalRunList, _: Sender) -> ExternalRunAnswer:
        check()
        return _answer(*runs.snapshot(session_id, ignore_malformed=message.ignore_malformed))

    bus.serve(ExternalRunRegister, register)
    bus.serve(ExternalRunUpdate, update)
    bus.serve(ExternalRunUnregister, unregister)
    bus.serve(ExternalRunList, shown)


def _answer(*runs: ExternalRun) -> ExternalRunAnswer:
    documents: list[dict[str, Any]] = msgspec.to_builtins(runs)
    return ExternalRunAnswer(runs=tuple(documents))
