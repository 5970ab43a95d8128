"""``pisub ps``: the runs, newest first."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path
from typing import Any

import msgspec

from pisub.cli.console import Console, safe
from pisub.cli.exits import Exit
from pisub.cli.render import STATE_COLORS, runs_table, unique_prefixes
from pisub.cli.select import inbox_session
from pisub.cli.summary import RunSummary, count_open, summarize
from pisub.cli.tree import Branch, grow, indent
from pisub.client.status import StatusReader
from pisub.client.views import current_views
from pisub.clock import SystemClock
from pisub.config import Settings
from pisub.errors import InvalidArgumentError, PisubError
from pisub.fleet import build_snapshot, fleet_text
from pisub.ids import is_id
from pisub.record.layout import Layout
from pisub.record.questions import list_open_asks


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """List live runs; with ``--all`` the finished ones too."""
    layout = Layout.of(settings)
    if arguments.fleet:
        return _fleet(arguments, console, settings, layout)
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
    branches = grow(summaries) if arguments.tree else [Branch(each) for each in summaries]
    if console.is_json:
        rows: Any = [each.document() for each in branches] if arguments.tree else msgspec.to_builtins(summaries)
        console.json("runs", {"runs": rows})
        return Exit.OK
    if not summaries:
        console.say("no runs" if arguments.all else "no live runs (`pisub ps -a` lists finished ones too)")
        return Exit.OK
    prefixes = unique_prefixes((each.run_id for each in summaries), _all_ids(layout))
    walked = [pair for branch in branches for pair in branch.walk()]
    shown = [each for _, each in walked if isinstance(each, RunSummary)]
    levels = [level for level, each in walked if isinstance(each, RunSummary)]
    indented = {
        each.run_id: f"{indent(level)}{prefixes[each.run_id]}" for each, level in zip(shown, levels, strict=True)
    }
    head, *lines = runs_table(shown, indented, now_ms=now_ms)
    rest = iter(zip(lines, shown, strict=True))
    console.result(head)
    for level, each in walked:
        console.result(f"{indent(level)}{each} more" if isinstance(each, int) else _colored(console, *next(rest)))
    return Exit.OK


def _fleet(arguments: Namespace, console: Console, settings: Settings, layout: Layout) -> Exit:
    if arguments.all or arguments.tree:
        raise InvalidArgumentError("--fleet shows who is at work: leave --all and --tree out.", field="fleet")
    session_id = arguments.session or settings.session or inbox_session(Path.cwd())
    reader = StatusReader(layout, session_id, settings)
    seen = reader.read()
    for problem in seen.problems:
        console.warn(problem)
    now_ms = SystemClock().wall_ms()
    fleet = reader.fleet(seen)
    if console.is_json:
        snapshot = build_snapshot(seen.jobs, session_id, generated_at=now_ms)
        document = {"fleet": fleet, "asyncSnapshot": snapshot}
        console.json("fleet", {"sessionId": session_id, **msgspec.to_builtins(document)})
        return Exit.OK
    console.result(safe(fleet_text(fleet, now_ms=now_ms)))
    return Exit.OK


def _colored(console: Console, line: str, summary: RunSummary) -> str:
    return line.replace(summary.state, console.style_result(summary.state, STATE_COLORS[summary.state]), 1)


def _all_ids(layout: Layout) -> list[str]:
    try:
        return [name for name in os.listdir(layout.runs) if is_id(name)]  # noqa: PTH208  # names only, of 20,000 runs
    except FileNotFoundError:
        return []
