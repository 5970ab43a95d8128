"""``pisub resume``: go on with a run that has ended, and watch the new one; with ``-d`` leave it to itself."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable

import msgspec

from pisub.cli.console import Console
from pisub.cli.exits import Exit
from pisub.cli.select import choose_dialogs, pick_run, read_value
from pisub.client.caller import require_control
from pisub.client.resuming import ResumeRequest, submit_resume
from pisub.client.spawn import launch_submitted
from pisub.config import Settings
from pisub.errors import InvalidArgumentError
from pisub.launchers.local import LocalLauncher
from pisub.record.layout import Layout
from pisub.record.reader import read_run
from pisub.runs.spec import RunSpec


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """Start the run that goes on; in the foreground the exit code follows it."""
    if arguments.detach and arguments.answers is not None:
        raise InvalidArgumentError("--answers needs a foreground run, or `pisub host --answers FILE`.", field="answers")
    layout = Layout.of(settings)
    run_id = pick_run(settings, layout, arguments.id)
    require_control(layout, run_id, "resume this run")
    request = ResumeRequest(
        run_id=run_id,
        message=read_value(arguments.message),
        session_id=settings.session,
        answers=read_answers(arguments.answer),
        attached=not arguments.detach,
    )
    if arguments.detach:
        return _detached(console, settings, layout, request)
    return _foreground(arguments, console, settings, layout, request)


def _detached(console: Console, settings: Settings, layout: Layout, request: ResumeRequest) -> Exit:
    spec = _start(settings, layout, request)
    if console.is_json:
        document = {"runId": spec.run_id, "sessionId": spec.session_id, "runDir": str(layout.run(spec.run_id).dir)}
        console.json("launched", {**document, "resumedFrom": request.run_id})
    else:
        console.result(spec.run_id)
    return Exit.OK


def _foreground(
    arguments: Namespace, console: Console, settings: Settings, layout: Layout, request: ResumeRequest
) -> Exit:
    dialogs = choose_dialogs(console, arguments.answers, bell=settings.notify_bell)
    import asyncio  # noqa: PLC0415  # -d needs neither a loop nor a broker

    from pisub.cli.attached import print_outcome, run_watched  # noqa: PLC0415  # zmq likewise
    from pisub.client.api import Client  # noqa: PLC0415  # likewise
    from pisub.client.runs import Run  # noqa: PLC0415  # likewise

    async def start(client: Client) -> Run:
        spec = await asyncio.to_thread(_start, settings, layout, request)
        return client.run(spec.run_id)

    # Its questions go to the host of the session that it belongs to.
    there = msgspec.structs.replace(settings, session=read_run(layout, request.run_id).spec.session_id)
    is_scripted = arguments.answers is not None
    return print_outcome(console, asyncio.run(run_watched(there, console, start, dialogs, is_scripted=is_scripted)))


def _start(settings: Settings, layout: Layout, request: ResumeRequest) -> RunSpec:
    submission = submit_resume(settings, layout, request)
    launch_submitted(layout, submission, LocalLauncher(settings))
    return submission.spec


def read_answers(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the pairs that ``--answer Q=V`` gives; Q ends at the first ``=``.

    Raises:
        InvalidArgumentError: One of them is no pair.
    """
    pairs: list[tuple[str, str]] = []
    for text in texts:
        question, separator, value = text.partition("=")
        if not separator or not question.strip():
            raise InvalidArgumentError(f"{text[:80]!a} is not of the form QUESTION=VALUE.", field="answer")
        pairs.append((question.strip(), value))
    return tuple(pairs)
