"""What a list says about one run, as a value: ``ps`` draws it, ``--json`` prints it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pisub.client.views import process_of
from pisub.process import is_suspended
from pisub.protocol.base import Record
from pisub.protocol.runs import RunState
from pisub.record.questions import AskView
from pisub.record.reader import RunView


class RunSummary(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One run in a list. Moments are Unix time in milliseconds.

    Attributes:
        parent_run_id: The run that started it; null for a person's or a program's. ``depth`` counts those above it.
        is_unknown: Nothing on this machine can tell whether it lives; ``last_update`` is when it was last seen.
        activity: What a live run does now: its tool, that it waits for a human, or what is noticeable about it.
        activity_since: Since when; null where that is not known.
        attention: ``needs_attention`` or ``active_long_running``, and ``attention_reason`` why; null where there is
            nothing to say.
        reason: Why a run that did not complete ended.
        open_questions: Questions that wait for an answer.
    """

    run_id: str
    state: RunState
    is_unknown: bool
    agent: str
    label: str
    session_id: str
    parent_run_id: str | None
    depth: int
    pid: int | None
    submitted_at: int
    started_at: int | None
    ended_at: int | None
    last_update: int | None
    activity: str
    activity_since: int | None
    attention: str | None
    attention_reason: str | None
    tool_count: int
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
    activity, since = _activity(view, open_questions) if is_live else ("", None)
    return RunSummary(
        run_id=view.run_id,
        state=view.state,
        is_unknown=view.is_unknown,
        agent=spec.agent.name,
        label=spec.label,
        session_id=spec.session_id,
        parent_run_id=spec.parent_run_id,
        depth=spec.depth,
        pid=process.pid if process is not None and is_live else None,
        submitted_at=spec.submitted_at,
        started_at=None if view.started is None else view.started.started_at,
        ended_at=None if result is None else result.ended_at,
        last_update=None if status is None else status.last_update,
        activity=activity,
        activity_since=since,
        attention=status.activity_state if is_live and status is not None else None,
        attention_reason=status.activity_reason if is_live and status is not None else None,
        tool_count=0 if status is None else status.tool_count,
        reason=_ended_because(view) if not is_live else None,
        error=None if result is None else result.error,
        open_questions=open_questions if is_live else 0,
    )


_ATTENTION_WORDS = {
    "waiting_for_human": "waits for an answer",
    "waiting_for_supervisor": "waits for its supervisor",
    "tool_failures": "its tools fail",
    "quiet": "quiet",
    "long_running": "at work",
}


def _activity(view: RunView, open_questions: int) -> tuple[str, int | None]:
    """Return what a live run does, and since when. Stalled is who cannot go on; quiet is who only says nothing."""
    status = view.status
    process = process_of(view)
    if process is not None and not view.is_unknown and is_suspended(process):
        return "stalled: its process is suspended (SIGCONT wakes it)", None
    if status is None:
        return "waits for an answer" if open_questions else "", None
    if open_questions:
        is_noted = status.activity_reason == "waiting_for_human"
        return "waits for an answer", status.activity_since if is_noted else None
    words = _ATTENTION_WORDS.get(status.activity_reason or "")
    if words is not None:
        return words, status.activity_since
    return status.current_tool or "", status.current_tool_started_at


def _ended_because(view: RunView) -> str | None:
    result = view.result
    if result is None or result.state is RunState.COMPLETE:
        return None
    # Of a runner that was killed unasked the signal says more than "died"; of a stop it is only how it was carried out.
    if result.reason == "runner-died" and result.signal is not None:
        return result.signal
    return result.reason or result.error
