"""``pisub host``: a session's questions and ends in this terminal. Ctrl-C only stops looking."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from pisub.cli.ceilings import read_ceiling
from pisub.cli.console import Console, safe_line
from pisub.cli.exits import Exit
from pisub.cli.interrupts import Interrupts
from pisub.cli.progress import DialogsOverProgress, Progress
from pisub.cli.render import STATE_COLORS
from pisub.cli.select import choose_dialogs, inbox_session
from pisub.client.api import host
from pisub.client.caller import require_person
from pisub.client.hosting import Host
from pisub.client.launching import put_ceiling
from pisub.config import Settings
from pisub.errors import InvalidArgumentError
from pisub.hosting.dialogs import DialogContext, Dialogs
from pisub.protocol.limits import SETTLE_S
from pisub.protocol.runs import RunState
from pisub.record.layout import Layout
from pisub.record.sessions import Delivery


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """Host a session until Ctrl-C."""
    require_person(Layout.of(settings), "be the host of a session")
    session_id = settings.session or inbox_session(Path.cwd())
    policy = read_ceiling(arguments)
    # Before it is the host, so that nothing is launched without; its end, or this process's, ends it.
    ceiling = None if policy is None else put_ceiling(_prepared(settings), session_id, "pisub host", policy)
    try:
        return _serve(arguments, console, settings, session_id)
    finally:
        if ceiling is not None:
            ceiling.dispose()


def _prepared(settings: Settings) -> Layout:
    layout = Layout.of(settings)
    layout.prepare()
    return layout


def _serve(arguments: Namespace, console: Console, settings: Settings, session_id: str) -> Exit:
    if arguments.stdio:
        if console.is_json:
            raise InvalidArgumentError("--stdio has standard output for itself: leave --json out.", field="stdio")
        return asyncio.run(_host_stdio(console, settings, session_id))
    dialogs = choose_dialogs(console, arguments.answers, bell=settings.notify_bell)
    if dialogs is None:
        raise InvalidArgumentError(
            "A host asks in a terminal, and this is none: use --answers FILE or --stdio.", field="answers"
        )
    return asyncio.run(_host(console, settings, session_id, dialogs, notify=arguments.answers is None))


async def _host_stdio(console: Console, settings: Settings, session_id: str) -> Exit:
    """Host for a program at standard input and output, until either ends or a signal comes."""
    from pisub.hosting.stdio import StdioDialogs  # noqa: PLC0415  # only who wants it pays

    over = asyncio.Event()
    dialogs = StdioDialogs(0, 1, over.set)

    def show(delivery: Delivery) -> None:
        done = delivery.completion
        kind = "info" if done.state is RunState.COMPLETE else "warning"
        dialogs.notify(f"run {done.run_id} ({done.agent}) {done.state}: {done.summary}", kind)

    def say(line: str) -> None:
        console.say(line)
        dialogs.notify(line)

    try:
        async with host(session_id, dialogs, show, wait=True, notify=True, settings=settings) as hosting:
            with Interrupts(over.set):
                announcing = asyncio.create_task(_take_turn(hosting, say))
                await over.wait()
            announcing.cancel()
            await asyncio.wait({announcing})
    finally:
        dialogs.close()
    return Exit.OK


async def _host(console: Console, settings: Settings, session_id: str, dialogs: Dialogs, *, notify: bool) -> Exit:
    over, announced = asyncio.Event(), asyncio.Event()
    progress = Progress(console)

    async def after_announcement(_: DialogContext) -> None:
        await announced.wait()

    def show(delivery: Delivery) -> None:
        done = delivery.completion
        if console.is_json:
            document: dict[str, Any] = msgspec.to_builtins(done)
            console.json("completion", {**document, "redelivered": delivery.redelivered})
            return
        state = console.style(done.state, STATE_COLORS[done.state])
        progress.say(f"run {done.run_id} ({safe_line(done.agent)}) {state}: {safe_line(done.summary, width=200)}")

    alone = DialogsOverProgress(dialogs, progress, after_announcement)
    async with host(session_id, alone, show, wait=True, notify=notify, settings=settings) as hosting:
        with Interrupts(over.set):
            announcing = asyncio.create_task(_announce(hosting, progress, announced))
            await over.wait()
        announcing.cancel()
        await asyncio.wait({announcing})
    return Exit.OK


async def _announce(hosting: Host, progress: Progress, announced: asyncio.Event) -> None:
    """Say what this terminal is, before its first dialog."""
    progress.say("Ctrl-C stops looking; the runs go on")
    await _take_turn(hosting, progress.say)
    announced.set()


async def _take_turn(hosting: Host, say: Callable[[str], None]) -> None:
    try:
        # A young broker gives roles away when it has settled: until then nobody knows of another host.
        async with asyncio.timeout(2 * SETTLE_S):
            await hosting.wait_for_turn()
    except TimeoutError:
        say(f"session {hosting.session_id} has a host already: this one waits for its turn")
        await hosting.wait_for_turn()
    say(f"host of session {hosting.session_id}")
