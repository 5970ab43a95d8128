"""``pisub run``: give an agent a task, and watch it; or with ``-d`` leave it to itself."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from pisub.cli.ceilings import read_ceiling
from pisub.cli.console import Console
from pisub.cli.exits import Exit
from pisub.cli.schemas import read_schema
from pisub.cli.select import choose_dialogs, inbox_session, read_task
from pisub.cli.trusting import require_trusted
from pisub.client.launching import LAUNCH_SOURCE, wishes_of
from pisub.client.spawn import SpawnRequest, spawn_blocking
from pisub.config import Settings
from pisub.errors import InvalidArgumentError
from pisub.record.layout import Layout
from pisub.runs.ceilings import check_ceiling
from pisub.runs.spec import OnNoHost


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """Run an agent; in the foreground the exit code follows the run."""
    task = read_task(arguments)
    cwd: Path = Path.cwd() if arguments.cwd is None else arguments.cwd.expanduser().absolute()
    if not cwd.is_dir():
        raise InvalidArgumentError(f"The working directory {cwd} does not exist.", field="cwd")
    if arguments.detach and arguments.answers is not None:
        raise InvalidArgumentError("--answers needs a foreground run, or `pisub host --answers FILE`.", field="answers")
    require_trusted(settings, console, arguments.agent, cwd)
    if arguments.detach:
        return _detached(arguments, console, settings, task, cwd)
    return _foreground(arguments, console, settings, task, cwd)


def _detached(arguments: Namespace, console: Console, settings: Settings, task: str, cwd: Path) -> Exit:
    layout = Layout.of(settings)
    policy = read_ceiling(arguments)
    request = SpawnRequest(
        agent=arguments.agent,
        task=task,
        session_id=settings.session or inbox_session(cwd),
        cwd=cwd,
        label=arguments.label,
        timeout_ms=_timeout_ms(arguments),
        on_no_host=OnNoHost(arguments.ask or OnNoHost.WAIT),
        ceiling=None if policy is None else check_ceiling(policy, LAUNCH_SOURCE),
        wishes=wishes_of(_wishes(arguments)),
    )
    spec = spawn_blocking(settings, layout, request)
    if console.is_json:
        directory = str(layout.run(spec.run_id).dir)
        console.json("launched", {"runId": spec.run_id, "sessionId": spec.session_id, "runDir": directory})
        return Exit.OK
    console.result(spec.run_id)
    for command, meaning in (
        (f"logs -f {spec.run_id}", "what it does"),
        ("questions", "what it wants to know; `pisub host` answers"),
        (f"wait {spec.run_id}", "until it has ended"),
        (f"result {spec.run_id}", "what it said"),
        (f"stop {spec.run_id}", "end it"),
    ):
        console.say(console.style(f"  pisub {command:<{len('logs -f ') + len(spec.run_id)}}   {meaning}", "dim"))
    return Exit.OK


def _foreground(arguments: Namespace, console: Console, settings: Settings, task: str, cwd: Path) -> Exit:
    dialogs = choose_dialogs(console, arguments.answers, bell=settings.notify_bell)
    import asyncio  # noqa: PLC0415  # -d needs neither a loop nor a broker

    from pisub.cli.attached import Request, print_outcome, run_watched  # noqa: PLC0415  # zmq likewise

    request = Request(
        agent=arguments.agent,
        task=task,
        cwd=cwd,
        label=arguments.label,
        timeout_ms=_timeout_ms(arguments),
        on_no_host=OnNoHost(arguments.ask or OnNoHost.FAIL),
        ceiling=read_ceiling(arguments),
        wishes=_wishes(arguments),
    )
    watched = asyncio.run(run_watched(settings, console, request, dialogs, is_scripted=arguments.answers is not None))
    return print_outcome(console, watched)


def _wishes(arguments: Namespace) -> dict[str, Any]:
    schema = None if arguments.schema is None else read_schema(arguments.schema)
    wishes = {"output": arguments.output, "skill": arguments.skill, "output_schema": schema}
    return {key: value for key, value in wishes.items() if value is not None}


def _timeout_ms(arguments: Namespace) -> int | None:
    return None if arguments.timeout is None else max(1, round(arguments.timeout * 1000))
