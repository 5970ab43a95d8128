"""``pisub questions --watch``: each question as it comes, and what became of it. By the files: no broker is needed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable

from pisub.cli.console import Console, safe_line
from pisub.cli.exits import Exit
from pisub.cli.waiting import POLL_S
from pisub.errors import PisubError
from pisub.record.layout import Layout
from pisub.record.model import AskRecord, QuestionOutcome
from pisub.record.questions import AskView, list_open_asks, read_ask

#: One question: its ask, and its number in it.
Key = tuple[str, int]


class Board:
    """Which questions are open, from one look to the next. Pure."""

    def __init__(self) -> None:
        self._open: dict[Key, AskRecord] = {}

    def look(self, asks: Iterable[AskView]) -> tuple[list[tuple[AskRecord, int]], list[tuple[AskRecord, int]]]:
        """Return the questions that are new, oldest first, and those that are open no more."""
        now = {(ask.record.ask_id, number): ask.record for ask in asks for number in ask.open_numbers}
        opened = [(record, key[1]) for key, record in now.items() if key not in self._open]
        closed = [(record, key[1]) for key, record in self._open.items() if key not in now]
        self._open = now
        opened.sort(key=lambda each: (each[0].asked_at, each[0].ask_id, each[1]))
        return opened, closed


def watch(
    layout: Layout,
    console: Console,
    *,
    session_id: str | None,
    show: Callable[[AskRecord, int], None],
    pause: Callable[[float], None] = time.sleep,
) -> Exit:
    """Show questions until Ctrl-C, or until whoever reads goes away."""
    board = Board()
    warned: set[str] = set()

    def warn(ask_id: str, error: PisubError) -> None:
        if ask_id not in warned:
            warned.add(ask_id)
            console.warn(error.message)

    while True:
        asks = list_open_asks(layout, session_id=session_id, on_problem=warn)
        opened, closed = board.look(asks)
        for record, number in closed:
            _say_closed(layout, console, record, number)
        for record, number in opened:
            show(record, number)
        pause(POLL_S)


def _say_closed(layout: Layout, console: Console, record: AskRecord, number: int) -> None:
    outcome: QuestionOutcome | None = None
    reason = ""
    with contextlib.suppress(PisubError, OSError):  # the run was removed meanwhile: that it is over is all there is
        view = read_ask(layout, record.run_id, record.ask_id)
        outcome = view.outcomes.get(number)
        reason = "" if view.outcome is None else view.outcome.result.reason
    kind = "ended" if outcome is None else outcome.kind.value
    by = "" if outcome is None or outcome.answer is None else outcome.answer.by
    why = reason if outcome is None else outcome.reason
    if console.is_json:
        document = {"askId": record.ask_id, "number": number, "runId": record.run_id, "outcome": kind, "by": by}
        console.json("question-closed", {**document, "reason": why})
        return
    more = f" by {by}" if by else f": {why}" if why else ""
    console.result(safe_line(f"{record.ask_id[:10]}.{number}  {kind}{more}"))
