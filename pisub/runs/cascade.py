"""The end of a run passed on to what it started: stop, deadline and interrupt reach everything below it.

Files, then a nudge, as for any request; each run below ends itself, and says in its record that its ancestor was the
reason. Whoever passes on fails for none: what could not be told is returned. It may be done twice.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Final

import msgspec

from pisub.errors import PisubError
from pisub.process import own_identity, send_signal
from pisub.protocol.runs import RunState
from pisub.record.atomic import exists
from pisub.record.control import request_control
from pisub.record.layout import Layout, RunPaths
from pisub.record.model import ControlRequest, RunResult
from pisub.record.reader import RunView, read_run
from pisub.record.tree import descendants
from pisub.runs.spec import RunSpec

#: ``source`` of a request that was passed on, and the ``reason`` of an end by it (contract, runs 4.6), by its kind.
ANCESTOR_REASONS: Final[Mapping[str, str]] = {
    "stop": "ancestor-stop",
    "timeout": "ancestor-timeout",
    "interrupt": "ancestor-interrupt",
}
_VERBS: Final[Mapping[str, str]] = {"stop": "was stopped", "timeout": "timed out", "interrupt": "was interrupted"}


class Untold(msgspec.Struct, frozen=True):
    """A run below that could not be told."""

    run_id: str
    error: str


def pass_on(layout: Layout, run_id: str, kind: str, *, now_ms: int) -> list[Untold]:
    """Ask everything that goes on below a run to end as it does. Blocks on some files for each; never raises for one.

    Args:
        layout: The record.
        run_id: The run that ends, or has ended.
        kind: ``stop``, ``timeout`` or ``interrupt``.
        now_ms: Unix time in milliseconds.

    Returns:
        Those that could not be told, and why.
    """
    untold: list[Untold] = []
    try:
        below = descendants(layout, run_id, on_problem=lambda each, error: untold.append(Untold(each, str(error))))
    except (PisubError, OSError) as error:
        return [Untold(run_id, str(error))]
    for spec in below:
        try:
            _tell(layout, read_run(layout, spec.run_id), run_id, kind, now_ms)
        except (PisubError, OSError) as error:
            untold.append(Untold(spec.run_id, str(error)))
    return untold


def inherited_end(layout: Layout, spec: RunSpec) -> tuple[str, str] | None:
    """Return the kind of end, and whose, that a run inherits which begins while a run above it ends.

    None where every run above goes on, or ended by itself, and for a run that was resumed on purpose.
    """
    if spec.resumed_from is not None:
        return None
    above = spec.parent_run_id
    while above is not None:
        view = read_run(layout, above)
        kind = ending_kind(layout.run(above), view)
        if kind is not None:
            return kind, above
        above = view.spec.parent_run_id
    return None


def ending_kind(paths: RunPaths, view: RunView) -> str | None:
    """Return how a run is being ended, or was: ``stop``, ``timeout`` or ``interrupt``; None where nobody ended it."""
    status = view.status
    if view.result is not None:
        return kind_of_end(view.result)
    if status is not None and (status.stopped or status.timed_out):
        return "stop" if status.stopped else "timeout"
    for kind in ANCESTOR_REASONS:
        if exists(paths.request(kind)) or exists(paths.accepted(kind)):
            return kind
    return None


def kind_of_end(result: RunResult) -> str | None:
    """Return what a result says that was asked for; None for a run that ended by itself, well or badly."""
    match result.state:
        case RunState.STOPPED:
            return "stop"
        case RunState.PAUSED:
            return "interrupt"
        case _:
            return "timeout" if result.reason in {"timeout", ANCESTOR_REASONS["timeout"]} else None


def ancestor_text(kind: str, run_id: str) -> str:
    """Return why a run is ended that inherits it, for its record."""
    return f"run {run_id}, which started it, {_VERBS[kind]}"


def _tell(layout: Layout, view: RunView, ancestor: str, kind: str, now_ms: int) -> None:
    if view.state.is_terminal:
        return
    if kind == "interrupt" and view.spec.agent.runner.type == "external-cli":
        # It could not go on where it was. It is not ended either: an interrupt must lose no work.
        raise PisubError(f"Agent {view.spec.agent.name} is a program, which cannot be interrupted: it goes on.")
    request = ControlRequest(
        type=kind,
        requested_at=now_ms,
        by=own_identity(),
        source=ANCESTOR_REASONS[kind],
        reason=ancestor_text(kind, ancestor),
    )
    request_control(layout.run(view.run_id), request)
    process = None if view.started is None else view.started.process
    if process is not None:
        send_signal(process, signal.SIGUSR2)
