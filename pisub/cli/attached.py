"""A run watched from this terminal: its progress, its questions, Ctrl-C. ``run`` and ``demo`` share it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec

from pisub.cli.console import Console
from pisub.cli.interrupts import Interrupts
from pisub.cli.progress import DialogsOverProgress, Progress
from pisub.client.api import Client, connect, host
from pisub.client.runs import Run
from pisub.config import Settings
from pisub.hosting.dialogs import Dialogs
from pisub.record.model import RunResult
from pisub.runs.spec import OnNoHost


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run and watched."""

    agent: str
    task: str
    cwd: Path
    label: str = ""
    timeout_ms: int | None = None
    on_no_host: OnNoHost = OnNoHost.FAIL
    is_attached: bool = True
    ceiling: dict[str, Any] | None = None
    wishes: dict[str, Any] = {}


async def run_watched(
    settings: Settings, console: Console, request: Request, dialogs: Dialogs | None, *, is_scripted: bool = False
) -> tuple[Client, RunResult]:
    """Start a run, show its progress, host its session where there are dialogs, and return how it ended.

    The first Ctrl-C stops the run; a second within two seconds leaves at once.
    """
    progress = Progress(console)
    async with _session(settings, progress, dialogs, notify=not is_scripted) as client:
        run = await client.spawn(
            request.agent,
            request.task,
            request.cwd,
            label=request.label,
            timeout_ms=request.timeout_ms,
            on_no_host=request.on_no_host,
            attached=request.is_attached,
            ceiling=request.ceiling,
            **request.wishes,
        )
        progress.run_id = run.id
        progress.say(console.style(f"run {run.id} (session {client.session_id})", "dim"))
        return client, await _watch(run, progress)


@contextlib.asynccontextmanager
async def _session(
    settings: Settings, progress: Progress, dialogs: Dialogs | None, *, notify: bool
) -> AsyncGenerator[Client]:
    if dialogs is None:
        async with connect(settings=settings) as client:
            yield client
        return
    # A session that has a host already keeps it: the questions then go there.
    over_progress = DialogsOverProgress(dialogs, progress, progress.caught_up)
    async with host(dialogs=over_progress, wait=True, notify=notify, settings=settings) as hosting:
        yield hosting.client


async def _watch(run: Run, progress: Progress) -> RunResult:
    stopping: list[asyncio.Task[RunResult]] = []

    def stop() -> None:
        progress.say("stopping the run; Ctrl-C again leaves at once")
        stopping.append(asyncio.get_running_loop().create_task(run.stop("interrupted by the user")))

    with Interrupts(stop):
        async for event in run.events():
            progress.show(event)
        result = await run.result()
        await asyncio.gather(*stopping)
    return result
