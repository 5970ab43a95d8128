"""``pisub wait``: until runs have ended. Ctrl-C only stops looking."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import msgspec

from pisub.cli.console import Console
from pisub.cli.exits import Exit, exit_for_run
from pisub.cli.select import pick_run
from pisub.cli.summary import summarize
from pisub.cli.waiting import has_ended, wait_for_end
from pisub.config import Settings
from pisub.record.layout import Layout
from pisub.record.reader import RunView


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """Wait for all runs, or for one of them; the exit code is the first that is not 0, in the order given."""
    layout = Layout.of(settings)
    run_ids = list(dict.fromkeys(pick_run(settings, layout, text) for text in arguments.ids))
    views = wait_for_end(layout, run_ids, is_any=arguments.any, timeout_s=arguments.timeout)
    ended = [view for view in views if has_ended(view)]
    if console.is_json:
        rows: Any = msgspec.to_builtins([summarize(view) for view in views])
        console.json("runs", {"runs": rows})
    else:
        for view in ended:
            console.result(f"{view.run_id} {view.state}")
    if len(ended) < (1 if arguments.any else len(views)):
        late = next(view for view in views if not has_ended(view))
        console.error(f"run {late.run_id} is still {late.state} after {arguments.timeout:g} s", "nothing was stopped")
        return Exit.WAIT_TIMEOUT
    return next((code for view in ended if (code := _exit(view)) is not Exit.OK), Exit.OK)


def _exit(view: RunView) -> Exit:
    return exit_for_run(view.state, reason=None if view.result is None else view.result.reason)
