"""``pisub logs``: what a run did, line by line. With ``-f`` it follows the files; Ctrl-C only stops looking."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import msgspec

from pisub.cli.console import Console
from pisub.cli.exits import Exit
from pisub.cli.render import event_lines
from pisub.cli.select import pick_run
from pisub.cli.waiting import POLL_S, pause
from pisub.client.views import current_view
from pisub.clock import SystemClock
from pisub.config import Settings
from pisub.record.journal import JournalReader
from pisub.record.layout import Layout
from pisub.record.lock import is_held
from pisub.record.model import JournalEvent


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """Print the events so far; with ``--follow`` go on until the run has ended."""
    layout = Layout.of(settings)
    run_id = pick_run(settings, layout, arguments.id)
    paths = layout.run(run_id)
    reader = JournalReader(paths.events)
    begin = 0 if arguments.since is None else arguments.since.begin(SystemClock().wall_ms())
    while True:
        # The end is looked at before the lines: what was written before it is then in what is read.
        view = current_view(layout, run_id, now_ms=SystemClock().wall_ms())
        is_over = view.state.is_terminal and not is_held(paths.lock)
        events = reader.read_new()
        for event in events:
            if event.ts >= begin:
                _print(console, event)
        if events:
            continue
        if is_over or not arguments.follow:
            return Exit.OK
        pause([view], POLL_S)


def _print(console: Console, event: JournalEvent) -> None:
    if console.is_json:
        document: dict[str, Any] = msgspec.to_builtins(event)
        console.json("event", document)
        return
    for line in event_lines(event):
        console.result(line)
