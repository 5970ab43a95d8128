"""``pisub questions``: what children want to know and nobody has answered."""

from __future__ import annotations

from argparse import Namespace
from typing import Final

import msgspec

from pisub.cli.console import Console, safe, safe_line
from pisub.cli.exits import Exit
from pisub.cli.question_watch import watch
from pisub.cli.render import age, unique_prefixes
from pisub.cli.unanswered import UnansweredQuestion, find_unanswered, unanswered_block
from pisub.client.open_questions import OpenQuestion, open_question
from pisub.clock import SystemClock
from pisub.config import Settings
from pisub.errors import InvalidArgumentError, PisubError
from pisub.record.layout import Layout
from pisub.record.model import AskRecord
from pisub.record.questions import list_open_asks

#: Of an ask's id, in what is printed once and for long: the moment, to the millisecond.
_ID_CHARS: Final = 10


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """List open questions, oldest first."""
    layout = Layout.of(settings)
    if arguments.watch:
        return _watch(arguments, console, layout)
    problems: list[PisubError] = []
    found_asks = list_open_asks(
        layout, session_id=arguments.session, on_problem=lambda _ask_id, error: problems.append(error)
    )
    for problem in problems:
        console.warn(problem.message)
    asks = sorted(found_asks, key=lambda ask: ask.record.asked_at)
    ended: list[UnansweredQuestion] = []
    if arguments.all:
        ended = find_unanswered(
            layout, session_id=arguments.session, on_problem=lambda _run_id, error: console.warn(error.message)
        )
    prefixes = unique_prefixes([ask.record.ask_id for ask in asks], ())
    found = [
        open_question(ask.record, number, prefixes[ask.record.ask_id]) for ask in asks for number in ask.open_numbers
    ]
    if console.is_json:
        more = {"unanswered": msgspec.to_builtins(ended)} if arguments.all else {}
        console.json("questions", {"questions": msgspec.to_builtins(found), **more})
        return Exit.OK
    if ended:
        console.result("\n\n".join(map(unanswered_block, ended)))
        console.say(f"\ngo on with: pisub resume {ended[0].run_id} MESSAGE --answer {ended[0].number}=VALUE\n")
    if not found:
        console.say("no open questions")
        return Exit.OK
    now_ms = SystemClock().wall_ms()
    console.result("\n\n".join(_block(console, each, now_ms) for each in found))
    first = found[0]
    console.say(f"\nanswer with: pisub answer {first.id} {'1' if first.options else 'TEXT'}")
    return Exit.OK


def _watch(arguments: Namespace, console: Console, layout: Layout) -> Exit:
    if arguments.all:
        raise InvalidArgumentError("--watch shows what is open, and --all what is not: give one of them.", field="all")

    def show(record: AskRecord, number: int) -> None:
        question = open_question(record, number, record.ask_id[:_ID_CHARS])
        if console.is_json:
            console.json("question", msgspec.to_builtins(question))
        else:
            console.result(_block(console, question, SystemClock().wall_ms()) + "\n")

    console.say("watching for questions; Ctrl-C ends it")
    return watch(layout, console, session_id=arguments.session, show=show)


def _block(console: Console, each: OpenQuestion, now_ms: int) -> str:
    who = safe_line(f"{each.agent} ({each.label})" if each.label else each.agent)
    lines = [
        f"{console.style_result(each.id, 'bold')}  {who}, run {each.run_id}, {age(now_ms - each.asked_at)} ago",
        *([f"  why: {safe_line(each.why)}"] if each.why else []),
        *(f"  {line}" for line in safe(each.text).split("\n")),
        *(f"    {at}) {safe_line(option)}" for at, option in enumerate(each.options, start=1)),
    ]
    return "\n".join(lines)
