"""``pisub interrupt``: have a run pause, so that it can be resumed."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from typing import Any

import msgspec

from pisub.cli.console import Console
from pisub.cli.exits import Exit
from pisub.cli.select import pick_run
from pisub.cli.summary import summarize
from pisub.client.runs import Run
from pisub.client.views import current_view
from pisub.clock import SystemClock
from pisub.config import Settings
from pisub.protocol.runs import RunState
from pisub.record.layout import Layout


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """Interrupt one run and wait until it has ended."""
    layout = Layout.of(settings)
    run_id = pick_run(settings, layout, arguments.id)
    interrupted = Run(run_id, layout=layout, settings=settings)
    result = asyncio.run(interrupted.interrupt(arguments.reason))
    if console.is_json:
        view = current_view(layout, run_id, now_ms=SystemClock().wall_ms())
        document: dict[str, Any] = msgspec.to_builtins(summarize(view))
        console.json("interrupted", document)
    else:
        console.result(f"{run_id} {result.state}")
        if result.state is RunState.PAUSED:
            console.say(f"`pisub resume {run_id} MESSAGE` goes on with it")
        else:
            console.say("it ended before the interrupt reached it")
    return Exit.OK
