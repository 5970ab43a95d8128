"""What a list says about one run, as a value: ``ps`` draws it, ``--json`` prints it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pisub.client.views import process_of
from pisub.protocol.base import Record
from pisub.protocol.runs import RunState
from pisub.record.questions import AskView
from pisub.record.reader import RunView


class RunSummary(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One run in a list. Moments are Unix time in milliseconds.

    Attributes:
        is_unknown: Nothing on this machine can tell whether it lives; ``last_update`` is when it was last seen.
        activity: What a live run does now: its tool, or that it waits for a human.
        reason: Why a run that did not complete ended.
        open_questions: Questions that wait for an answer.
    """

    run_id: str
    state: RunState
    is_unknown: bool
    agent: str
    label: str
    session_id: str
    pid: int | None
    submitted_at: int
    started_at: int | None
    ended_at: int | None
    last_update: int | None
    activity: str
    reason: str | None
    error: str | None
    open_questions: int


def count_open(asks: Iterable[AskView]) -> Counter[str]:
    """Return the number of open questions by run."""
    counts: Counter[str] = Counter()
    for ask in asks:
        counts[ask.record.run_id] += len(ask.open_numbers)
    return counts


def summarize(view: RunView, *, open_questions: int = 0) -> RunSummary:
    """Return the summary of one run."""
    spec, status, result = view.spec, view.status, view.result
    process = process_of(view)
    is_live = not view.state.is_terminal
    return RunSummary(
        run_id=view.run_id,
        state=view.state,
        is_unknown=view.is_unknown,
        agent=spec.agent.name,
        label=spec.label,
        session_id=spec.session_id,
        pid=process.pid if process is not None and is_live else None,
        submitted_at=spec.submitted_at,
        started_at=None if view.started is None else view.started.started_at,
        ended_at=None if result is None else result.ended_at,
        last_update=None if status is None else status.last_update,
        activity=_activity(view, open_questions) if is_live else "",
        reason=_ended_because(view) if not is_live else None,
        error=None if result is None else result.error,
        open_questions=open_questions if is_live else 0,
    )


def _activity(view: RunView, open_questions: int) -> str:
    if open_questions:
        return "waits for an answer"
    status = view.status
    if status is None:
        return ""
    return status.current_tool or status.activity_state or ""


def _ended_because(view: RunView) -> str | None:
    result = view.result
    if result is None or result.state is RunState.COMPLETE:
        return None
    # Of a runner that was killed unasked the signal says more than "died"; of a stop it is only how it was carried out.
    if result.reason == "runner-died" and result.signal is not None:
        return result.signal
    return result.reason or result.error
