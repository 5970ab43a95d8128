"""``pisub result``: what a run's child said at its end."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import msgspec

from pisub.cli.console import Console
from pisub.cli.exits import Exit, exit_for_run
from pisub.cli.select import pick_run
from pisub.client.output import whole_output
from pisub.client.views import current_view
from pisub.clock import SystemClock
from pisub.config import Settings
from pisub.protocol.runs import RunState
from pisub.record.layout import Layout
from pisub.record.model import RunResult


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """Print the result of a run that has ended; the exit code follows the run."""
    layout = Layout.of(settings)
    run_id = pick_run(settings, layout, arguments.id)
    view = current_view(layout, run_id, now_ms=SystemClock().wall_ms())
    if view.result is None:
        console.error(f"run {run_id} is {view.state} and has no result yet", f"`pisub wait {run_id}` waits for it")
        if console.is_json:
            console.json("error", {"code": "not_finished", "message": f"run {run_id} is {view.state}", "field": None})
        return Exit.NOT_FINISHED
    return print_result(console, layout, view.result)


def why(result: RunResult) -> str:
    """Return in one sentence why a run did not complete. The rest of a traceback is in ``pisub show``."""
    first = (result.error or "").strip().partition("\n")[0]
    if result.state is RunState.STOPPED:  # what it says first is the state
        first = first.removeprefix("Stopped: ")
    return first or result.signal or result.reason or "no reason was recorded"


def _text(layout: Layout, result: RunResult) -> str:
    """Return a result as text: the structured value where the run was to give one, as a line of JSON."""
    if result.structured is msgspec.UNSET:
        return whole_output(layout, result)
    return msgspec.json.encode(result.structured).decode()


def print_result(console: Console, layout: Layout, result: RunResult) -> Exit:
    """Print a result: its text to standard output, why there is none to standard error."""
    if console.is_json:
        document: dict[str, Any] = msgspec.to_builtins(result)
        console.json("result", {**document, "runDir": str(layout.run(result.run_id).dir)})
    else:
        console.result(_text(layout, result))
        if not result.success:
            console.error(
                f"run {result.run_id} {result.state}: {why(result)}", f"`pisub show {result.run_id}` shows more"
            )
    return exit_for_run(result.state, reason=result.reason)
