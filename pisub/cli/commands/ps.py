"""``pisub ps``: the runs, newest first."""

from __future__ import annotations

import os
from argparse import Namespace
from typing import Any

import msgspec

from pisub.cli.console import Console
from pisub.cli.exits import Exit
from pisub.cli.render import STATE_COLORS, runs_table, unique_prefixes
from pisub.cli.summary import RunSummary, count_open, summarize
from pisub.client.views import current_views
from pisub.clock import SystemClock
from pisub.config import Settings
from pisub.errors import PisubError
from pisub.ids import is_id
from pisub.record.layout import Layout
from pisub.record.questions import list_open_asks


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """List live runs; with ``--all`` the finished ones too."""
    layout = Layout.of(settings)
    now_ms = SystemClock().wall_ms()
    session_id: str | None = arguments.session
    problems: list[PisubError] = []
    views = current_views(
        layout,
        now_ms=now_ms,
        session_id=session_id,
        include_finished=arguments.all,
        on_problem=lambda _run_id, error: problems.append(error),
    )
    for problem in problems:
        console.warn(problem.message)
    asks = count_open(list_open_asks(layout, session_id=session_id) if views else ())
    summaries = [summarize(view, open_questions=asks[view.run_id]) for view in views]
    if console.is_json:
        rows: Any = msgspec.to_builtins(summaries)
        console.json("runs", {"runs": rows})
        return Exit.OK
    if not summaries:
        console.say("no runs" if arguments.all else "no live runs (`pisub ps -a` lists finished ones too)")
        return Exit.OK
    head, *lines = runs_table(
        summaries, unique_prefixes((each.run_id for each in summaries), _all_ids(layout)), now_ms=now_ms
    )
    colored = [_colored(console, line, each) for line, each in zip(lines, summaries, strict=True)]
    console.result("\n".join([head, *colored]))
    return Exit.OK


def _colored(console: Console, line: str, summary: RunSummary) -> str:
    return line.replace(summary.state, console.style_result(summary.state, STATE_COLORS[summary.state]), 1)


def _all_ids(layout: Layout) -> list[str]:
    try:
        return [name for name in os.listdir(layout.runs) if is_id(name)]  # noqa: PTH208  # names only, of 20,000 runs
    except FileNotFoundError:
        return []
