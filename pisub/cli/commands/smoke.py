"""``pisub smoke``: the three ways in which a question can go, across real processes, in a directory of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import tempfile
from argparse import Namespace
from collections.abc import Generator
from pathlib import Path
from typing import Final

import msgspec

import pisub
from pisub.agents.trust import trust
from pisub.cli.console import Console
from pisub.cli.exits import Exit
from pisub.config import Settings
from pisub.hosting.scripted import ScriptedHuman
from pisub.launch import find_broker
from pisub.launchers.nursery import nurseries
from pisub.process import ProcessIdentity, open_pidfd, send_signal
from pisub.protocol.checkpoint import Question

_AGENT: Final = """\
---
name: smoke
description: Asks two questions.
runner:
  type: python
  target: pisub.smoke_agent:ask
---
"""
#: Far longer than any of it takes: a machine that needs this is not well.
_HANG_S: Final = 60.0
#: What the broker and the nursery get to go.
_LEAVE_S: Final = 10.0


class Scenario(msgspec.Struct, frozen=True, rename="camel"):
    """One way, what was to be seen, and what was."""

    name: str
    wanted: str
    seen: str

    @property
    def is_right(self) -> bool:
        """Whether they are the same."""
        return self.wanted == self.seen


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:  # noqa: ARG001  # every command's shape
    """Run the scenarios, print what was seen, leave nothing."""
    with _private(settings) as (own, project):
        scenarios = asyncio.run(_all(own, project))
    is_right = all(each.is_right for each in scenarios)
    if console.is_json:
        found = [{**msgspec.to_builtins(each), "isRight": each.is_right} for each in scenarios]
        console.json("smoke", {"isRight": is_right, "scenarios": found})
    else:
        for each in scenarios:
            mark = "ok    " if each.is_right else "FAILED"
            tail = "" if each.is_right else f"  (wanted: {each.wanted})"
            console.result(f"{mark} {each.name:<12} {each.seen}{tail}")
    return Exit.OK if is_right else Exit.FAILED


async def _all(settings: Settings, project: Path) -> list[Scenario]:
    return [await _hosted(settings, project), await _local(settings), await _no_host(settings, project)]


async def _hosted(settings: Settings, project: Path) -> Scenario:
    """A child in a process of its own asks; this process is the host."""
    human = ScriptedHuman(["right", "heron"])
    async with pisub.host("smoke-hosted", human, settings=settings) as host:
        run = await host.spawn("smoke", "hosted", project, attached=True)
        result = await run.result(_HANG_S)
    shown = ", ".join(each.title for each in human.asked)
    wanted = "ok right heron; dialogs: Which?, Token of hosted?"
    return Scenario("hosted relay", wanted, f"{result.output or result.error or result.state}; dialogs: {shown}")


async def _local(settings: Settings) -> Scenario:
    """The session that hosts asks for itself: no message, the same dialogs."""
    human = ScriptedHuman(["left", "otter"])
    async with pisub.host("smoke-local", human, settings=settings) as host, asyncio.timeout(_HANG_S):
        result = await host.ask([Question("Which?", options=("left", "right")), Question("Token of local?")])
    said = " ".join([str(result.status), *map(str, result.values)])
    shown = ", ".join(each.title for each in human.asked)
    return Scenario("local host", "ok left otter; dialogs: Which?, Token of local?", f"{said}; dialogs: {shown}")


async def _no_host(settings: Settings, project: Path) -> Scenario:
    """A child asks, and nobody is there: it is told so, and goes on."""
    async with pisub.connect("smoke-alone", settings) as client:
        run = await client.spawn("smoke", "alone", project, attached=True)
        result = await run.result(_HANG_S)
    return Scenario("no host", "no-host None None", result.output or result.error or str(result.state))


@contextlib.contextmanager
def _private(settings: Settings) -> Generator[tuple[Settings, Path]]:
    """Give settings whose every file is in a temporary directory, and a trusted project; end what was started there."""
    with tempfile.TemporaryDirectory(prefix="pisub-smoke-") as base:
        own = msgspec.structs.replace(
            settings, home=Path(base, "home"), runtime_dir=Path(base, "run"), session=None, idle_exit_ms=None
        )
        project = Path(base, "project")
        agents = project / ".pisub" / "agents"
        agents.mkdir(parents=True)
        (agents / "smoke.md").write_text(_AGENT, encoding="utf-8")
        trust(own, project)
        try:
            yield own, project
        finally:
            broker = find_broker(own)
            for process in (*nurseries(Path(base, "run")), *([] if broker is None else [broker.process])):
                _end(process)


def _end(process: ProcessIdentity) -> None:
    """End a daemon and wait for it: its directory may only go when it, which writes there, has gone."""
    descriptor = open_pidfd(process)
    send_signal(process, signal.SIGTERM)
    if descriptor is not None:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        poller.poll(round(_LEAVE_S * 1000))
        os.close(descriptor)
