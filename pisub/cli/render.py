"""How values look to a person: tables, ages, one line per event. Pure: texts in, texts out.

Everything that a child wrote passes through ``console.safe``: it must not drive the terminal.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

import msgspec

from pisub.cli.console import safe, safe_line
from pisub.cli.summary import RunSummary
from pisub.ids import ID_LENGTH
from pisub.protocol.runs import RunState
from pisub.record.model import JournalEvent

#: Shorter ones are unique today and not tomorrow: 8 characters are 256 ms of time.
_SHORTEST_SHOWN: Final = 8
_MAX_ARGUMENTS: Final = 80

STATE_COLORS: Final[dict[RunState, str]] = {
    RunState.QUEUED: "cyan",
    RunState.RUNNING: "cyan",
    RunState.PAUSED: "yellow",
    RunState.COMPLETE: "green",
    RunState.FAILED: "red",
    RunState.STOPPED: "yellow",
    RunState.REJECTED: "red",
}


def age(milliseconds: int) -> str:
    """Return a duration in its largest unit: ``12s``, ``3m``, ``5h``, ``2d``."""
    seconds = max(milliseconds, 0) // 1000
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def duration(milliseconds: int) -> str:
    """Return a duration with what a person wants to know of it: ``0.4 s``, ``12.0 s``, ``3 min 5 s``."""
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    minutes, seconds = divmod(milliseconds // 1000, 60)
    return f"{minutes} min {seconds} s"


def clock_time(at_ms: int) -> str:
    """Return a moment as the local time of day."""
    return time.strftime("%H:%M:%S", time.localtime(at_ms / 1000))


def moment(at_ms: int | None) -> str:
    """Return a moment as local date and time; '-' for none."""
    return "-" if at_ms is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000))


def unique_prefixes(shown: Iterable[str], all_ids: Iterable[str]) -> dict[str, str]:
    """Return, for each id, its shortest beginning (of 8 characters or more) that no other id has."""
    wanted = set(shown)
    ids = sorted(wanted.union(all_ids))
    found: dict[str, str] = {}
    for at, each in enumerate(ids):
        if each in wanted:
            neighbours = (*ids[max(at - 1, 0) : at], *ids[at + 1 : at + 2])
            length = max((_common(each, other) + 1 for other in neighbours), default=0)
            found[each] = each[: min(max(length, _SHORTEST_SHOWN), ID_LENGTH)]
    return found


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows under a head, in columns; the last column is not padded."""
    everything = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(len(row[column]) for row in everything) for column in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in everything
    ]


def runs_table(summaries: Sequence[RunSummary], prefixes: dict[str, str], *, now_ms: int) -> list[str]:
    """Return the table of ``pisub ps``."""
    rows = [
        (
            prefixes[each.run_id],
            state_words(each, now_ms=now_ms),
            safe_line(each.agent, width=24),
            age(now_ms - (each.started_at or each.submitted_at)),
            safe_line(each.label, width=24) or "-",
            "-" if each.pid is None else str(each.pid),
            str(each.open_questions or "-"),
            safe_line(activity_words(each, now_ms=now_ms) or each.reason or "", width=60) or "-",
        )
        for each in summaries
    ]
    return table(("ID", "STATE", "AGENT", "AGE", "LABEL", "PID", "ASKS", "ACTIVITY"), rows)


def state_words(summary: RunSummary, *, now_ms: int) -> str:
    """Return a run's state; of one that nobody can look at, when it was last seen."""
    if not summary.is_unknown:
        return summary.state.value
    seen = summary.last_update or summary.started_at or summary.submitted_at
    return f"unknown, last seen {age(now_ms - seen)} ago"


def activity_words(summary: RunSummary, *, now_ms: int) -> str:
    """Return what a live run does, with how long already; '' where there is nothing to say."""
    if not summary.activity or summary.activity_since is None:
        return summary.activity
    return f"{summary.activity}, {age(now_ms - summary.activity_since)}"


def event_text(event: JournalEvent) -> str | None:
    """Return what an event tells a person, on one or more lines; None for one that tells nothing new."""
    family, _, kind = event.type.removeprefix("subagent.").partition(".")
    data = event.data
    match family:
        case "child":
            return safe(str(data.get("text", ""))).rstrip("\n")
        case "tool":
            return _tool_text(kind, data)
        case "ask":
            return _ask_text(kind, data)
        case "steer":
            return _steer_text(kind, data)
        case "artifact":
            return f"wrote {safe_line(str(data.get('path', '?')))} ({data.get('bytes', '?')} bytes)"
        case "run":
            return _run_text(kind, data)
        case "journal":
            return "a torn line of this journal was repaired" if kind == "repaired" else None
        case _:
            return None


def event_lines(event: JournalEvent) -> list[str]:
    """Return an event's lines with its time of day before the first; none where it tells nothing new."""
    text = event_text(event)
    if not text:
        return []
    first, *rest = text.split("\n")
    return [f"{clock_time(event.ts)}  {first}", *(f"          {line}" for line in rest)]


def _tool_text(kind: str, data: dict[str, Any]) -> str | None:
    name = safe_line(str(data.get("tool", "?")))
    if kind == "started":
        return f"→ {name}({_arguments(data.get('args'))})"
    return f"✗ {name} failed" if data.get("isError") else None


def _ask_text(kind: str, data: dict[str, Any]) -> str:
    if kind != "opened":
        return f"? {safe_line(str(data.get('status', kind)))}"
    count = data.get("count", 1)
    return f"? asks you {count} question{'' if count == 1 else 's'}"


def _steer_text(kind: str, data: dict[str, Any]) -> str | None:
    match kind:
        case "requested":
            return f"✉ {safe_line(str(data.get('preview', '')))}"
        case "failed":
            return f"✉ not delivered: {safe_line(str(data.get('reason', '')))}"
        case _:
            return f"✉ {kind}"


def _run_text(kind: str, data: dict[str, Any]) -> str:
    why = data.get("error") or data.get("signal") or data.get("message") or data.get("reason")
    match kind:
        case "started":
            return kind
        case "completed":
            word = str(data.get("status", kind))
            why = None if why in {word, "stop"} else why
        case "stopped":
            word = "stopping"
        case "repaired_stale":
            word = str(data.get("state", "ended"))
            why = f"{why}, found afterwards" if why else "found afterwards"
        case _:
            word = kind.replace("_", " ")
    return safe_line(f"{word}: {why}" if why else word)


def _arguments(arguments: object) -> str:
    if not isinstance(arguments, dict):
        return ""
    values = cast("dict[str, object]", arguments)  # JSON: keys are texts
    shown = ", ".join(f"{name}={_short(value)}" for name, value in values.items())
    return safe_line(shown, width=_MAX_ARGUMENTS)


def _short(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode("utf-8", "replace")


def _common(left: str, right: str) -> int:
    for at, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return at
    return min(len(left), len(right))
