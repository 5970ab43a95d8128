"""``pisub external``: work that is no run of pisub's, told to a session's host, which shows it."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from pathlib import Path
from typing import Any

import msgspec

from pisub.cli.broker_link import connected
from pisub.cli.console import Console, safe
from pisub.cli.exits import Exit
from pisub.cli.select import inbox_session
from pisub.client.external_runs import RemoteExternalRuns
from pisub.clock import SystemClock
from pisub.config import Settings
from pisub.errors import InvalidArgumentError
from pisub.fleet.external import ExternalRun, external_text

_MOMENTS = ("startedAt", "updatedAt", "endedAt")


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """List, register, update or unregister."""
    session_id = arguments.session or settings.session or inbox_session(Path.cwd())
    is_list = arguments.action == "list"
    if is_list and (arguments.id is not None or arguments.set):
        raise InvalidArgumentError("list takes no ID and no --set.", field="id")
    if not is_list and arguments.id is None:
        raise InvalidArgumentError(f"{arguments.action} needs the ID.", field="id")
    fields = _fields(arguments.set)
    shown, is_found = asyncio.run(_visit(arguments, settings, session_id, fields))
    if console.is_json:
        rows: Any = msgspec.to_builtins(shown)
        console.json("external", {"sessionId": session_id, "runs": rows, "isFound": is_found})
    elif arguments.action == "unregister":
        console.say("shown no more" if is_found else "there was none")
    else:
        console.result(safe(external_text(shown)))
    return Exit.OK if is_found else Exit.NOT_FOUND


async def _visit(
    arguments: Namespace, settings: Settings, session_id: str, fields: dict[str, Any]
) -> tuple[tuple[ExternalRun, ...], bool]:
    async with connected(settings, session_id) as bus:
        runs = RemoteExternalRuns(bus, session_id)
        match arguments.action:
            case "register":
                fields.setdefault("startedAt", SystemClock().wall_ms())
                return (await runs.register(arguments.id, **fields),), True
            case "update":
                return (await runs.update(arguments.id, **fields),), True
            case "unregister":
                return (), await runs.unregister(arguments.id)
            case _:
                return await runs.snapshot(), True


def _fields(pairs: list[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign:
            raise InvalidArgumentError(f"--set {pair[:40]!a} has no =: write KEY=VALUE.", field="set")
        fields[key] = int(value) if key in _MOMENTS and value.isdecimal() else value
    return fields
