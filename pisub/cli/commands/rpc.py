"""``pisub rpc``: one request of RPC v1 to a session's host, and its reply."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from pathlib import Path
from typing import Any, cast

import msgspec

from pisub.cli.broker_link import connected
from pisub.cli.console import Console, safe
from pisub.cli.exits import Exit
from pisub.cli.select import inbox_session, read_value
from pisub.client.hosted import call_rpc
from pisub.config import Settings
from pisub.errors import InvalidArgumentError, NotDeliveredError, RefusedError


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """Ask, and print what the host says: its text, or with ``--json`` all of it."""
    session_id = arguments.session or settings.session or inbox_session(Path.cwd())
    params = None if arguments.params is None else _read_params(arguments.params)
    data = asyncio.run(_call(settings, session_id, arguments.method, params))
    if console.is_json:
        console.json("rpc", {"method": arguments.method, "data": data})
    elif (text := _text(data)) is not None:
        console.result(safe(text))
    else:
        console.result(safe(msgspec.json.format(msgspec.json.encode(data)).decode()))
    return Exit.OK


async def _call(settings: Settings, session_id: str, method: str, params: dict[str, Any] | None) -> Any:
    async with connected(settings, session_id) as bus:
        try:
            return await call_rpc(bus, session_id, method, params)
        except NotDeliveredError as error:
            raise RefusedError(
                f"Session {session_id!r} has no host that could answer: `pisub host` is one.", code="no_active_session"
            ) from error


def _text(data: object) -> str | None:
    found: object = cast("dict[str, object]", data).get("text") if isinstance(data, dict) else None
    return found if isinstance(found, str) else None


def _read_params(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(read_value(text), type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidArgumentError(f"The params are no JSON object: {error}", field="params") from error
