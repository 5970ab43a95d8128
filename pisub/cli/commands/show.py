"""``pisub show``: everything that the record knows of one run."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import msgspec

from pisub.cli.console import Console, safe, safe_line
from pisub.cli.exits import Exit
from pisub.cli.render import duration, moment, state_words
from pisub.cli.select import pick_run
from pisub.cli.summary import count_open, summarize
from pisub.client.views import current_view
from pisub.clock import SystemClock
from pisub.config import Settings
from pisub.record.layout import Layout, RunPaths
from pisub.record.questions import list_open_asks
from pisub.record.reader import RunView

#: More of a task than this is cut for people; ``--json`` has it whole.
_TASK_CHARS = 2_000


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """Show one run."""
    layout = Layout.of(settings)
    now_ms = SystemClock().wall_ms()
    run_id = pick_run(settings, layout, arguments.id)
    view = current_view(layout, run_id, now_ms=now_ms)
    questions = count_open(list_open_asks(layout)).get(run_id, 0)
    paths = layout.run(run_id)
    if console.is_json:
        document: dict[str, Any] = msgspec.to_builtins(view)
        console.json("run", {**document, "state": view.state, "openQuestions": questions, "runDir": str(paths.dir)})
        return Exit.OK
    pairs = _facts(view, paths, questions, now_ms)
    width = max(len(name) for name, _ in pairs)
    console.result("\n".join(f"{name.ljust(width)}  {value}" for name, value in pairs))
    task = view.spec.task
    console.result(f"\n{safe(task[:_TASK_CHARS])}{'…' if len(task) > _TASK_CHARS else ''}")
    return Exit.OK


def _facts(view: RunView, paths: RunPaths, questions: int, now_ms: int) -> list[tuple[str, str]]:
    summary = summarize(view, open_questions=questions)
    spec, result = view.spec, view.result
    pairs = [
        ("run", view.run_id),
        ("state", state_words(summary, now_ms=now_ms)),
        ("agent", safe_line(summary.agent)),
        ("label", safe_line(summary.label)),
        ("session", summary.session_id),
        ("directory", safe_line(spec.cwd)),
        ("submitted", moment(summary.submitted_at)),
        ("started", moment(summary.started_at)),
        ("ended", moment(summary.ended_at)),
        ("took", "" if result is None else duration(result.duration_ms)),
        ("waited for you", duration(result.waiting_for_human_ms) if result and result.waiting_for_human_ms else ""),
        ("process", "" if summary.pid is None else str(summary.pid)),
        ("does", safe_line(summary.activity)),
        ("open questions", str(questions or "")),
        ("reason", summary.reason or ""),
        ("error", "\n  ".join(safe(summary.error or "").split("\n"))),
        ("parent", spec.parent_run_id or ""),
        ("files", str(paths.dir)),
        *(("artifact", str(paths.dir / each)) for each in (() if result is None else result.artifacts)),
    ]
    return [(name, value) for name, value in pairs if value not in {"", "-"}]
