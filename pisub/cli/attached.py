"""A run watched from this terminal: its progress, its questions, Ctrl-C. ``run``, ``resume`` and ``demo`` share it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from pisub.cli.commands.result import print_result
from pisub.cli.console import Console
from pisub.cli.exits import Exit
from pisub.cli.interrupts import Interrupts
from pisub.cli.progress import DialogsOverProgress, Progress
from pisub.client.api import Client, connect, host
from pisub.client.awaiting import awaiting
from pisub.client.runs import Run
from pisub.config import Settings
from pisub.hosting.dialogs import Dialogs
from pisub.record.layout import Layout
from pisub.record.model import RunResult
from pisub.runs.spec import OnNoHost


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run and watched. Called with a client it starts it."""

    agent: str
    task: str
    cwd: Path
    label: str = ""
    timeout_ms: int | None = None
    on_no_host: OnNoHost = OnNoHost.FAIL
    is_attached: bool = True
    ceiling: dict[str, Any] | None = None
    wishes: dict[str, Any] = {}

    async def __call__(self, client: Client) -> Run:
        """Start the run.

        Raises:
            PisubError: As ``Client.spawn``.
        """
        return await client.spawn(
            self.agent,
            self.task,
            self.cwd,
            label=self.label,
            timeout_ms=self.timeout_ms,
            on_no_host=self.on_no_host,
            attached=self.is_attached,
            ceiling=self.ceiling,
            **self.wishes,
        )


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was watched to its end. ``is_hung_up``: its terminal was closed meanwhile."""

    client: Client
    result: RunResult
    is_hung_up: bool


async def run_watched(
    settings: Settings,
    console: Console,
    start: Callable[[Client], Awaitable[Run]],
    dialogs: Dialogs | None,
    *,
    is_scripted: bool = False,
) -> Watched:
    """Start a run, show its progress, host its session where there are dialogs, and return how it ended.

    The first Ctrl-C, SIGTERM or SIGHUP stops the run; a second within two seconds leaves at once.
    """
    progress = Progress(console)
    async with _session(settings, progress, dialogs, notify=not is_scripted) as client:
        run = await start(client)
        progress.run_id = run.id
        progress.say(console.style(f"run {run.id} (session {client.session_id})", "dim"))
        result, is_hung_up = await _watch(client.layout, run, progress)
        return Watched(client=client, result=result, is_hung_up=is_hung_up)


def print_outcome(console: Console, watched: Watched) -> Exit:
    """Say where its artifacts are, print its result, and return the exit code that follows it."""
    client, result = watched.client, watched.result
    for artifact in () if console.is_json else result.artifacts:
        console.say(f"artifact: {client.layout.run(result.run_id).dir / artifact}")
    code = print_result(console, client.layout, result)
    return Exit.HANG_UP if watched.is_hung_up else code


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


async def _watch(layout: Layout, run: Run, progress: Progress) -> tuple[RunResult, bool]:
    stopping: list[asyncio.Task[RunResult]] = []

    def stop() -> None:
        progress.say("stopping the run; Ctrl-C again leaves at once")
        stopping.append(asyncio.get_running_loop().create_task(run.stop("interrupted by the user")))

    with Interrupts(stop) as interrupts:
        with awaiting(layout, [run.id]):
            async for event in run.events():
                progress.show(event)
        result = await run.result()
        await asyncio.gather(*stopping)
    return result, interrupts.is_hung_up
