"""A status in words: of a session in short, of its fleet, of one run, and the end of what a run did.

For people and models: no line drives a terminal, and none of them holds a task.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import UNSET

from pisub.fleet.jobs import Job, of_session
from pisub.fleet.text import clean_line
from pisub.protocol.fleet import FleetEntry, FleetStatus
from pisub.record.model import JournalEvent
from pisub.record.reader import RunView

#: Lines of a transcript where nobody says how many, and at most (contract, runs 1.3).
DEFAULT_LINES: Final = 80
MAX_LINES: Final = 500
_MAX_LINE_UNITS: Final = 400
#: Runs that a short status names.
_MAX_NAMED: Final = 20


def status_text(jobs: Sequence[Job], session_id: str | None, *, now_ms: int) -> str:
    """Return a session's active runs in short: a line about all, and one each."""
    active = [job for job in of_session(jobs, session_id) if job.is_active]
    if not active:
        return "No active runs in this session."
    lines = [f"{_count(len(active), 'active run')} in this session:"]
    lines += [f"- {job.id} {_job_words(job, now_ms)}" for job in active[:_MAX_NAMED]]
    if len(active) > _MAX_NAMED:
        lines.append(f"- and {len(active) - _MAX_NAMED} more")
    return "\n".join(lines)


def fleet_text(fleet: FleetStatus, *, now_ms: int) -> str:
    """Return a fleet status as a list, oldest first."""
    if not fleet.total_active:
        return "Nobody is at work in this session."
    lines = [f"{_count(fleet.total_active, 'child', 'children')} at work:"]
    lines += [f"- {each.key} {_entry_words(each, now_ms)}" for each in fleet.entries]
    if fleet.omitted:
        lines.append(f"- and {fleet.omitted} more")
    return "\n".join(lines)


def run_text(view: RunView, job: Job, *, index: int | None = None) -> str:
    """Return what is known of one run, or of one of its steps.

    Args:
        view: The run.
        job: The same run, as ``jobs_of`` returns it.
        index: Only this step, counted from 0. The caller knows that there is one.
    """
    state = "unknown" if view.is_unknown else view.state.value
    lines = [f"Run {view.run_id}: {state}", f"Agent: {clean_line(view.spec.agent.name, _MAX_LINE_UNITS)}"]
    label = clean_line(view.spec.label, _MAX_LINE_UNITS)
    if label:
        lines.append(f"Label: {label}")
    if view.status is not None:
        if view.status.activity_state is not None:
            lines.append(f"Attention: {view.status.activity_state} ({view.status.activity_reason})")
        if view.status.current_tool is not None:
            lines.append(f"Tool: {clean_line(view.status.current_tool, _MAX_LINE_UNITS)}")
    for step in job.steps:
        if index is None or step.index == index:
            tokens = f", {step.tokens.total} tokens" if step.tokens.total else ""
            lines.append(f"Step {step.index}: {clean_line(step.agent, _MAX_LINE_UNITS)} {step.status}{tokens}")
    if view.result is not None and view.result.summary:
        lines.append(f"Summary: {clean_line(view.result.summary, _MAX_LINE_UNITS)}")
    lines += [f"Problem: {clean_line(each, _MAX_LINE_UNITS)}" for each in view.problems]
    return "\n".join(lines)


def transcript_text(events: Iterable[JournalEvent], *, lines: int = DEFAULT_LINES) -> str:
    """Return the last lines of what a run did, as its journal has it."""
    found = [line for event in events for line in _event_lines(event)]
    return "\n".join(found[-lines:]) or "Nothing was written down yet."


def _event_lines(event: JournalEvent) -> list[str]:
    kind = event.type.removeprefix("subagent.")
    text = event.data.get("text")
    if isinstance(text, str):
        return [clean_line(line, _MAX_LINE_UNITS) for line in text.splitlines()]
    said = [
        clean_line(value, _MAX_LINE_UNITS)
        for key in ("tool", "status", "preview", "message", "error", "reason")
        if isinstance(value := event.data.get(key), str) and value.strip()
    ]
    return [" ".join([f"[{clean_line(kind, _MAX_LINE_UNITS)}]", *said])]


def _job_words(job: Job, now_ms: int) -> str:
    agents = ", ".join(clean_line(each, 96) for each in job.agents) or job.mode
    words = [f"{agents} {job.state}", _age(now_ms, job.started_at)]
    if job.activity.state is not None:
        words.append(job.activity.state.replace("_", " "))
    if job.activity.current_tool is not None:
        words.append(clean_line(job.activity.current_tool, 96))
    goal = clean_line(job.goal, 96)
    return ", ".join(filter(None, words)) + (f": {goal}" if goal else "")


def _entry_words(entry: FleetEntry, now_ms: int) -> str:
    extra = [each for each in (entry.role, entry.model, entry.effort) if each is not UNSET and each]
    words = [f"{entry.agent} ({', '.join(extra)})" if extra else entry.agent, _age(now_ms, entry.started_at)]
    if entry.tokens.total:
        words.append(f"{entry.tokens.total} tokens")
    return ", ".join(words) + (f": {entry.goal}" if entry.goal else "")


def _age(now_ms: int, since_ms: int | None) -> str:
    return "" if since_ms is None else f"{max(0, now_ms - since_ms) // 1000} s"


def _count(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or one + 's'}"
