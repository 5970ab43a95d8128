"""``pisub host``: a session's questions and ends in this terminal. Ctrl-C only stops looking."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from pathlib import Path
from typing import Any

import msgspec

from pisub.cli.authority import refuse_children
from pisub.cli.console import Console, safe_line
from pisub.cli.exits import Exit
from pisub.cli.interrupts import Interrupts
from pisub.cli.render import STATE_COLORS
from pisub.cli.select import choose_dialogs, inbox_session
from pisub.client.api import host
from pisub.config import Settings
from pisub.errors import InvalidArgumentError
from pisub.hosting.dialogs import Dialogs
from pisub.record.layout import Layout
from pisub.record.sessions import Delivery


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """Host a session until Ctrl-C."""
    refuse_children(Layout.of(settings), "be the host of a session")
    dialogs = choose_dialogs(console, arguments.answers)
    if dialogs is None:
        raise InvalidArgumentError("A host asks in a terminal, and this is none: use --answers FILE.", field="answers")
    session_id = settings.session or inbox_session(Path.cwd())
    return asyncio.run(_host(console, settings, session_id, dialogs))


async def _host(console: Console, settings: Settings, session_id: str, dialogs: Dialogs) -> Exit:
    over = asyncio.Event()

    def show(delivery: Delivery) -> None:
        done = delivery.completion
        if console.is_json:
            document: dict[str, Any] = msgspec.to_builtins(done)
            console.json("completion", {**document, "redelivered": delivery.redelivered})
            return
        state = console.style(done.state, STATE_COLORS[done.state])
        console.say(f"run {done.run_id} ({safe_line(done.agent)}) {state}: {safe_line(done.summary, width=200)}")

    async with host(session_id, dialogs, show, wait=True, settings=settings) as hosting:
        console.say(f"host of session {session_id}" if hosting.is_host else f"waiting to be host of {session_id}")
        console.say("Ctrl-C stops looking; the runs go on")
        with Interrupts(over.set):
            await over.wait()
    return Exit.OK
