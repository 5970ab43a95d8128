"""``pisub show``: everything that the record knows of one run."""

from __future__ import annotations

import contextlib
from argparse import Namespace
from typing import Any

import msgspec

from pisub.cli.console import Console, safe, safe_line
from pisub.cli.exits import Exit
from pisub.cli.render import activity_words, age, duration, moment, state_words
from pisub.cli.select import pick_run
from pisub.cli.summary import RunSummary, count_open, summarize
from pisub.cli.tree import Branch, grow, indent
from pisub.client.views import current_view
from pisub.clock import SystemClock
from pisub.config import Settings
from pisub.errors import PisubError
from pisub.protocol.runs import RunState
from pisub.record.atomic import read_record
from pisub.record.caps import tree_budget
from pisub.record.layout import Layout, RunPaths
from pisub.record.questions import list_open_asks
from pisub.record.reader import RunView
from pisub.record.tree import descendants, root_of
from pisub.record.unanswered import list_unanswered
from pisub.runs.spec import RunSpec

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
    family = _family(layout, view, now_ms)
    if console.is_json:
        document: dict[str, Any] = msgspec.to_builtins(view)
        console.json(
            "run",
            {
                **document,
                "state": view.state,
                "openQuestions": questions,
                "runDir": str(paths.dir),
                "children": [each.document() for each in family.children],
                "omittedChildren": family.omitted,
                **_budgets(layout, view),
            },
        )
        return Exit.OK
    pairs = [*_facts(view, paths, questions, now_ms), *_below(layout, view, family), *_unanswered(layout, view)]
    width = max(len(name) for name, _ in pairs)
    console.result("\n".join(f"{name.ljust(width)}  {value}" for name, value in pairs))
    task = view.spec.task
    console.result(f"\n{safe(task[:_TASK_CHARS])}{'…' if len(task) > _TASK_CHARS else ''}")
    return Exit.OK


def _family(layout: Layout, view: RunView, now_ms: int) -> Branch:
    """Return a run with what is below it, repaired like the run itself."""
    below: list[RunView] = []
    for spec in descendants(layout, view.run_id):
        with contextlib.suppress(PisubError, OSError):  # it is about another run
            below.append(current_view(layout, spec.run_id, now_ms=now_ms))
    top, *_ = grow([summarize(each) for each in (view, *below)])
    return top


def _budgets(layout: Layout, view: RunView) -> dict[str, Any]:
    """Return how many runs were ever started below the first run of this one's tree, and how many may be."""
    root = read_record(layout.run(root_of(view.spec)).spec, RunSpec)
    if root is None:
        return {}
    budget = tree_budget(layout, root)
    return {"spawned": budget.used, "maxSubagentSpawnsPerRun": {"used": budget.used, "limit": budget.limit}}


def _below(layout: Layout, view: RunView, family: Branch) -> list[tuple[str, str]]:
    """Return the lines about what a run started."""
    lines = [_line(level - 1, each) for level, each in list(family.walk())[1:]]
    budget = _budgets(layout, view).get("maxSubagentSpawnsPerRun")
    if not lines or budget is None:
        return []
    return [("below it", "\n  ".join(lines)), ("spawned", f"{budget['used']} of {budget['limit']} in its tree")]


def _line(level: int, each: RunSummary | int) -> str:
    if isinstance(each, int):
        return f"{indent(level)}{each} more"
    words = (each.run_id, each.state.value, safe_line(each.agent, width=24), each.reason or "")
    return indent(level) + " ".join(filter(None, words))


def _heard_of(view: RunView, paths: RunPaths, now_ms: int) -> str:
    """Return how long ago a live run's child reported anything. The journal's own time is newer than the status."""
    if view.state.is_terminal or view.status is None:
        return ""
    at = view.status.last_activity_at or view.status.started_at
    with contextlib.suppress(OSError):
        at = max(at, round(paths.events.stat().st_mtime * 1000))
    return f"{age(now_ms - at)} ago"


def _work_time(view: RunView, now_ms: int) -> str:
    """Return what a live run with a deadline has left, and whether its clock goes."""
    status = view.status
    if view.state.is_terminal or status is None or status.timeout_ms is None:
        return ""
    of = f"of {duration(status.timeout_ms)} left"
    if status.deadline_at is not None:
        return f"{duration(max(0, status.deadline_at - now_ms))} {of}; ends at {moment(status.deadline_at)}"
    left = status.timeout_ms if status.remaining_ms is None else status.remaining_ms
    return f"{duration(left)} {of}; its clock stands still while it waits for you"


def _proof(view: RunView) -> str:
    """Return what the process's parent saw of its end, and what it used."""
    proof = view.proof
    if proof is None:
        return ""
    how = proof.signal or ("" if proof.exit_code is None else f"exit code {proof.exit_code}")
    used_s = None if proof.user_s is None or proof.system_s is None else proof.user_s + proof.system_s
    parts = (
        how,
        "" if proof.state == "observed" else f"{proof.state}: {proof.reason or 'nobody looked'}",
        "" if used_s is None else f"{used_s:.1f} s of CPU",
        "" if not proof.max_rss_kib else f"at most {proof.max_rss_kib // 1024} MiB",
    )
    return ", ".join(filter(None, parts))


def _model(view: RunView) -> str:
    steps = () if view.status is None else view.status.steps
    return safe_line(", ".join(dict.fromkeys(each.model for each in steps if each.model)))


def _used(view: RunView) -> str:
    """Return what the child reports of its models."""
    usage = None if view.status is None else view.status.usage
    if usage is None:
        return ""
    cached = f" ({usage.cache_read:,} from a cache)" if usage.cache_read else ""
    turns = f"{usage.turns} turn{'s' * (usage.turns != 1)}"
    cost = f", ${usage.cost:.4f}" if usage.cost else ""
    return f"{usage.input:,} tokens in{cached}, {usage.output:,} out, {turns}{cost}"


def _messages(view: RunView) -> str:
    ledger = None if view.status is None else view.status.steering
    if ledger is None:
        return ""
    return f"{ledger.total} sent, {ledger.delivered} delivered, {ledger.failed} failed"


def _unanswered(layout: Layout, view: RunView) -> list[tuple[str, str]]:
    """Return the questions that a run which can be resumed got no answer to."""
    if not view.state.is_terminal or view.state is RunState.STOPPED:
        return []
    return [
        (f"unanswered {at}", f"{each.reference}  {safe_line(each.question.text, width=100)}")
        for at, each in enumerate(list_unanswered(layout, view.run_id), start=1)
    ]


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
        ("work time", _work_time(view, now_ms)),
        ("took", "" if result is None else duration(result.duration_ms)),
        ("waited for you", duration(result.waiting_for_human_ms) if result and result.waiting_for_human_ms else ""),
        ("process", "" if summary.pid is None else str(summary.pid)),
        ("does", safe_line(activity_words(summary, now_ms=now_ms))),
        ("last heard of", _heard_of(view, paths, now_ms)),
        ("tools used", str(summary.tool_count or "")),
        ("model", _model(view)),
        ("used", _used(view)),
        ("messages", _messages(view)),
        ("open questions", str(questions or "")),
        ("seen to end", _proof(view)),
        ("reason", summary.reason or ""),
        ("error", "\n  ".join(safe(summary.error or "").split("\n"))),
        ("parent", spec.parent_run_id or ""),
        ("root", spec.root_run_id or ""),
        ("depth", f"{spec.depth} below a person's" if spec.depth else ""),
        ("resumed from", spec.resumed_from or ""),
        ("told", safe_line(spec.resume_message, width=200)),
        ("files", str(paths.dir)),
        *(("artifact", str(paths.dir / each)) for each in (() if result is None else result.artifacts)),
    ]
    return [(name, value) for name, value in pairs if value not in {"", "-"}]
