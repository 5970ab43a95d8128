"""``pisub contact``: a word to the session that started a run, from a program inside that run. Files alone."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from typing import Any

import msgspec

from pisub.cli.console import Console
from pisub.cli.exits import Exit
from pisub.cli.select import read_value
from pisub.client.caller import calling_run
from pisub.config import Settings
from pisub.contacting import Contact, contact
from pisub.errors import InvalidArgumentError, RefusedError
from pisub.record.layout import Layout
from pisub.record.reader import read_run


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """Say it, and print the reply where one is waited for."""
    layout = Layout.of(settings)
    message = "" if arguments.message is None else read_value(arguments.message)
    interview = None if arguments.interview is None else _read_interview(arguments.interview)
    run_id = calling_run(layout)
    if run_id is None:
        raise RefusedError(
            "This process belongs to no live run, so no session started it: `pisub contact` is for what a run starts.",
            code="not_in_a_run",
        )
    spec = read_run(layout, run_id).spec
    who = Contact(run_id=run_id, session_id=spec.session_id, agent=spec.agent.name)
    timeout_s = spec.supervisor_timeout_ms / 1000 if arguments.timeout is None else arguments.timeout
    reply = asyncio.run(contact(layout, who, arguments.reason, message, interview, timeout_s=timeout_s))
    if console.is_json:
        structured = {} if reply.structured is None else {"structuredReply": reply.structured}
        problem = {"structuredReplyParseError": reply.parse_error} if reply.parse_error else {}
        console.json("reply", {"reason": arguments.reason, "message": reply.message, **structured, **problem})
    elif reply.message:
        console.result(reply.message)
    return Exit.OK


def _read_interview(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(read_value(text), type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidArgumentError(f"The interview is no JSON object: {error}", field="interview") from error
