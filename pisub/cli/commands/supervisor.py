"""``pisub supervisor``: what children want to know from the session that started them, and the reply."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import msgspec

from pisub.cli.console import Console, safe, safe_line
from pisub.cli.exits import Exit
from pisub.cli.render import age
from pisub.cli.select import inbox_session, read_value
from pisub.client.caller import require_person
from pisub.clock import SystemClock
from pisub.config import Settings
from pisub.errors import InvalidArgumentError
from pisub.record.layout import Layout
from pisub.record.supervisor import list_requests, reply_to_request
from pisub.runs.supervision import SupervisorRequest, choose


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """List what waits, or reply."""
    layout = Layout.of(settings)
    now_ms = SystemClock().wall_ms()
    session_id = settings.session or inbox_session(Path.cwd())
    found = list_requests(
        layout, session_id, now_ms=now_ms, on_problem=lambda _, problem: console.warn(problem.message)
    )
    pending = [each for each in found if each.expects_reply]
    if arguments.action == "list":
        if arguments.message is not None:
            raise InvalidArgumentError("list takes no message.", field="message")
        return _list(pending, console, now_ms)
    require_person(layout, "reply in the supervisor's name")
    message = "" if arguments.message is None else read_value(arguments.message)
    if not message.strip():
        raise InvalidArgumentError("reply needs a message that is not blank.", field="message")
    request = choose(pending, reply_to=arguments.id, to=arguments.to)
    end = reply_to_request(layout, request, message, now_ms=now_ms)
    if console.is_json:
        console.json("replied", {"requestId": request.id, "runId": request.run_id, "createdAt": end.created_at})
    else:
        console.result(f"replied to {request.id} ({safe_line(request.agent)})")
    return Exit.OK


def _list(pending: list[SupervisorRequest], console: Console, now_ms: int) -> Exit:
    if console.is_json:
        console.json("requests", {"requests": msgspec.to_builtins(pending)})
        return Exit.OK
    if not pending:
        console.say("no open requests")
    for each in pending:
        console.result(
            f"{each.id}  {safe_line(each.agent)}, run {each.run_id}, {age(now_ms - each.created_at)} ago: {each.reason}"
        )
        if each.message:
            console.result(f"  {safe(each.message)}")
        if each.interview is not None:
            console.result(f"  {safe(msgspec.json.encode(each.interview).decode())}")
    return Exit.OK
