"""``pisub wait``: until runs have ended. Ctrl-C only stops looking."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from pisub.cli.console import Console
from pisub.cli.exits import Exit, exit_for_run
from pisub.cli.select import inbox_session, pick_run
from pisub.cli.summary import RunSummary, summarize
from pisub.cli.waiting import has_ended, wait_for_end
from pisub.client.views import current_views
from pisub.clock import SystemClock
from pisub.config import Settings
from pisub.record.layout import Layout
from pisub.record.reader import RunView
from pisub.runs.attention import ActivityState, Reason

_WAYS_OUT = {
    Reason.WAITING_FOR_HUMAN.value: "pisub questions",
    Reason.WAITING_FOR_SUPERVISOR.value: "pisub supervisor list",
}
_NEEDY = ActivityState.NEEDS_ATTENTION.value


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """Wait for all runs, or for one of them; the exit code is the first that is not 0, in the order given.

    Who is waited for is settled when the wait begins: what starts later, also with the same agent, changes nothing.
    """
    layout = Layout.of(settings)
    run_ids = list(dict.fromkeys(pick_run(settings, layout, text) for text in arguments.ids))
    if not arguments.ids:
        run_ids = _active(layout, settings.session or inbox_session(Path.cwd()))
        many = f"waiting for {len(run_ids)} run{'s' * (len(run_ids) > 1)} of this session"
        console.say(many if run_ids else "nothing of this session goes on: there is nothing to wait for")
    notes = _Notes(console)
    views = wait_for_end(
        layout,
        run_ids,
        is_any=arguments.any,
        timeout_s=arguments.timeout,
        is_enough=lambda seen: notes.look(seen) and arguments.attention,
    )
    ended = [view for view in views if has_ended(view)]
    if console.is_json:
        rows: Any = msgspec.to_builtins([summarize(view) for view in views])
        console.json("runs", {"runs": rows})
    else:
        for view in ended:
            console.result(f"{view.run_id} {view.state}")
    if views and len(ended) < (1 if arguments.any else len(views)):
        if arguments.attention and any(map(_needs_somebody, map(summarize, views))):
            return Exit.NEEDS_YOU
        late = next(view for view in views if not has_ended(view))
        console.error(f"run {late.run_id} is still {late.state} after {arguments.timeout:g} s", "nothing was stopped")
        return Exit.WAIT_TIMEOUT
    return next((code for view in ended if (code := _exit(view)) is not Exit.OK), Exit.OK)


class _Notes:
    """Says once of each run that it needs somebody, for as long as it does."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said: frozenset[str] = frozenset()

    def look(self, views: Sequence[RunView]) -> bool:
        """Tell whether a run needs somebody."""
        needy = {each.run_id: each for each in map(summarize, views) if _needs_somebody(each)}
        for run_id in sorted(needy.keys() - self._said):
            way_out = _WAYS_OUT.get(needy[run_id].attention_reason or "", f"pisub show {run_id}")
            self._console.say(f"run {run_id} needs you: {needy[run_id].activity} ({way_out})")
        self._said = frozenset(needy)
        return bool(needy)


def _needs_somebody(summary: RunSummary) -> bool:
    return summary.attention == _NEEDY


def _active(layout: Layout, session_id: str) -> list[str]:
    """Return the session's runs that go on; what a run started is waited for by that run."""
    views = current_views(layout, now_ms=SystemClock().wall_ms(), session_id=session_id)
    return [view.run_id for view in reversed(views) if view.spec.parent_run_id is None]


def _exit(view: RunView) -> Exit:
    return exit_for_run(view.state, reason=None if view.result is None else view.result.reason)
