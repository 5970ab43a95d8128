"""``pisub resume``: go on with a run that has ended, in a new one. Files and a launch; no broker."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable

from pisub.cli.console import Console
from pisub.cli.exits import Exit
from pisub.cli.select import pick_run, read_value
from pisub.client.caller import require_control
from pisub.client.resuming import ResumeRequest, submit_resume
from pisub.client.spawn import launch_submitted
from pisub.config import Settings
from pisub.errors import InvalidArgumentError
from pisub.launchers.local import LocalLauncher
from pisub.record.layout import Layout


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """Start the run that goes on, print its id, and return."""
    layout = Layout.of(settings)
    run_id = pick_run(settings, layout, arguments.id)
    require_control(layout, run_id, "resume this run")
    request = ResumeRequest(
        run_id=run_id,
        message=read_value(arguments.message),
        session_id=settings.session,
        answers=read_answers(arguments.answer),
    )
    submission = submit_resume(settings, layout, request)
    launch_submitted(layout, submission, LocalLauncher(settings))
    spec = submission.spec
    if console.is_json:
        document = {"runId": spec.run_id, "sessionId": spec.session_id, "runDir": str(layout.run(spec.run_id).dir)}
        console.json("launched", {**document, "resumedFrom": run_id})
    else:
        console.result(spec.run_id)
    return Exit.OK


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
