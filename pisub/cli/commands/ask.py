"""``pisub ask``: a question to the human from a program that runs inside a run. Its runner asks for it."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from typing import Final

import msgspec

from pisub.cli.console import Console, safe_line
from pisub.cli.exits import Exit
from pisub.client.asking import ask_from_run
from pisub.config import Settings
from pisub.errors import InvalidArgumentError
from pisub.protocol.checkpoint import AskResult, AskStatus, Question
from pisub.record.layout import Layout

#: What the exit code says of each way in which an ask ends.
EXIT_OF: Final[dict[AskStatus, Exit]] = {
    AskStatus.OK: Exit.OK,
    AskStatus.TIMEOUT_OR_CANCELLED: Exit.DECLINED,
    AskStatus.TIMEOUT: Exit.WAIT_TIMEOUT,
    AskStatus.CANCELLED: Exit.STOPPED,
    AskStatus.NO_HOST: Exit.NO_HOST,
    AskStatus.ERROR: Exit.FAILED,
}


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """Ask the questions as one batch, and print the answers, one per line."""
    options = tuple(arguments.option)
    questions = tuple(
        Question(text, options if len(arguments.question) == 1 else (), arguments.placeholder)
        for text in arguments.question
    )
    if options and len(questions) > 1:
        raise InvalidArgumentError("--option goes with one question: ask the others apart.", field="option")
    asked = ask_from_run(
        settings,
        Layout.of(settings),
        questions,
        why=arguments.why,
        timeout_s=_time(arguments.timeout),
        question_timeout_s=_time(arguments.question_timeout),
    )
    result = asyncio.run(asked)
    _print(result, console)
    return EXIT_OF[result.status]


def _time(given: float | None) -> float | msgspec.UnsetType | None:
    """Return an option's time: left out it is the run's, 0 is for ever."""
    return msgspec.UNSET if given is None else given or None


def _print(result: AskResult, console: Console) -> None:
    if console.is_json:
        console.json("answers", {key: value for key, value in msgspec.to_builtins(result).items() if key != "type"})
        return
    if not result.is_ok:
        console.say(f"{result.status}: {safe_line(result.reason)}" if result.reason else str(result.status))
        return
    for answer in result.answers:
        if answer is not None:
            console.result(answer.value)
