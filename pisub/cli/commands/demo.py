"""``pisub demo``: the whole of it in a minute. A survey of a directory, with two questions on the way."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
from argparse import Namespace
from pathlib import Path
from typing import Final

from pisub.cli.attached import Request, run_watched
from pisub.cli.commands.result import why
from pisub.cli.console import Console
from pisub.cli.exits import Exit, exit_for_run
from pisub.cli.select import choose_dialogs, script_dialogs
from pisub.config import Settings
from pisub.errors import InvalidArgumentError

AGENT: Final = "surveyor"
TASK: Final = "survey this repository"
_ANSWERS: Final = Path(__file__).parents[1] / "demo_answers.yaml"


def own_command() -> str:
    """Return how to call this program again: its name where a shell finds it, else where it lies."""
    called = Path(sys.argv[0])
    if shutil.which("pisub") is not None or called.name != "pisub":
        return "pisub"
    absolute, here = called.absolute(), Path.cwd()
    return shlex.quote(str(absolute.relative_to(here) if absolute.is_relative_to(here) else absolute))


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """Survey a directory in a detached runner, answer its questions here or from a script, print the report's path."""
    directory: Path = (Path.cwd() if arguments.directory is None else arguments.directory).expanduser().absolute()
    if not directory.is_dir():
        raise InvalidArgumentError(f"{directory} is not a directory.", field="directory")
    dialogs = choose_dialogs(console, arguments.answers)
    if dialogs is None:
        console.say("no terminal here: a scripted human answers")
        dialogs = script_dialogs(console, _ANSWERS)
    console.say(f"agent {AGENT}, in a process of its own, task: {TASK} ({directory})")
    request = Request(agent=AGENT, task=TASK, cwd=directory, label="demo", is_attached=False)
    watched = asyncio.run(run_watched(settings, console, request, dialogs))
    result = watched.result
    paths = watched.client.layout.run(result.run_id)
    if not result.success:
        console.error(f"the survey {result.state}: {why(result)}", f"pisub logs {result.run_id}")
        return Exit.HANG_UP if watched.is_hung_up else exit_for_run(result.state, reason=result.reason)
    reports = [str(paths.dir / each) for each in result.artifacts]
    if console.is_json:
        console.json("demo", {"runId": result.run_id, "runDir": str(paths.dir), "reports": reports})
        return Exit.OK
    pisub = own_command()
    console.say(f"\nit goes on from here: {pisub} show {result.run_id}, {pisub} ps -a, {pisub} agents")
    console.result("\n".join(reports) or str(paths.dir))
    return Exit.OK
