"""``pisub answer`` and ``pisub decline``: give a question its one outcome. Whoever is first decides."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import msgspec

from pisub.cli.console import Console, safe_line
from pisub.cli.exits import Exit
from pisub.cli.nudge import tell
from pisub.cli.select import read_value
from pisub.client.open_questions import give_outcome
from pisub.client.stopping import wake_by_signal
from pisub.config import Settings
from pisub.errors import UnknownRunError
from pisub.protocol.checkpoint import HOST_ROLE, AnswerPosted
from pisub.protocol.runs import runner_address
from pisub.record.layout import Layout
from pisub.record.model import AskRecord, QuestionOutcome
from pisub.record.reader import read_run

_BY = "cli"


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """Answer or decline one question."""
    layout = Layout.of(settings)
    is_answer = arguments.command == "answer"
    record, won = give_outcome(
        layout,
        arguments.question,
        value=read_value(arguments.value) if is_answer else None,
        reason="" if is_answer else arguments.reason,
        by=_BY,
    )
    _post(settings, layout, record, won.number)
    if console.is_json:
        document: dict[str, Any] = msgspec.to_builtins(won)
        console.json("outcome", {"outcome": document.pop("kind"), **document, "runId": record.run_id})
    else:
        console.result(_in_words(won))
    return Exit.OK


def _post(settings: Settings, layout: Layout, record: AskRecord, number: int) -> None:
    """Wake the runner and close the host's dialog. Both find the file by themselves, only later."""
    message = AnswerPosted(ask_id=record.ask_id, run_id=record.run_id, number=number)
    addresses = (runner_address(record.run_id), f"role:{HOST_ROLE}")
    if tell(settings, addresses, message, session_id=record.session_id):
        return
    try:
        view = read_run(layout, record.run_id)
    except UnknownRunError:
        return
    wake_by_signal(view)


def _in_words(outcome: QuestionOutcome) -> str:
    if outcome.answer is not None:
        return f"{outcome.kind}: {safe_line(outcome.answer.value)}"
    return f"{outcome.kind}: {safe_line(outcome.reason)}" if outcome.reason else str(outcome.kind)
