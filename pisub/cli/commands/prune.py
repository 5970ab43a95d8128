"""``pisub prune``: old runs are set aside, and what was set aside a day ago is removed."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from typing import Any

import msgspec

from pisub.cli.console import Console
from pisub.cli.exits import Exit
from pisub.clock import SystemClock
from pisub.config import Settings
from pisub.record.layout import Layout
from pisub.record.reaping import GRACE_MS, Reaped, reap
from pisub.record.retention import Removal, Skip, set_aside
from pisub.record.subscriptions import sweep_subscriptions

#: What a skip is called for people, who need not know the record's words.
_WORDS = {
    Skip.INVALID_STATUS: "cannot be read",
    Skip.IDENTITY_MISMATCH: "were moved or copied",
    Skip.RUNTIME_REFERENCE: "may have a living process",
    Skip.WAIT_REFERENCE: "are waited for",
    Skip.ACTIVE_INDEX: "have an end that is not wholly recorded",
    Skip.NON_TERMINAL: "have not ended",
    Skip.NESTED_REFERENCE: "belong to a run that goes on",
    Skip.COMPLETION_REFERENCE: "have an end that no host has handled (--undelivered removes them too)",
    Skip.RESUMABLE: "are paused and can be resumed",
    Skip.UNKNOWN_AGE: "have no age",
    Skip.RECENT: "changed since",
}


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """Remove in two steps; what stays is counted by reason."""
    layout = Layout.of(settings)
    now_ms = SystemClock().wall_ms()
    is_dry_run: bool = arguments.dry_run
    if not is_dry_run:
        sweep_subscriptions(layout, before_ms=now_ms - GRACE_MS)
    removals = list(
        set_aside(
            layout,
            now_ms=now_ms,
            older_than_ms=arguments.older_than,
            is_dry_run=is_dry_run,
            with_undelivered=arguments.undelivered,
        )
    )
    reaped = list(reap(layout, now_ms=now_ms, grace_ms=0 if arguments.reap else GRACE_MS, is_dry_run=is_dry_run))
    if console.is_json:
        rows: dict[str, Any] = {
            "isDryRun": is_dry_run,
            "setAside": [each.run_id for each in removals if each.reason is None],
            "skipped": msgspec.to_builtins(
                [
                    {"runId": each.run_id, "reason": each.reason, "detail": each.detail}
                    for each in removals
                    if each.reason is not None
                ]
            ),
            "removed": [each.run_id for each in reaped if each.problem is None],
            "problems": [{"runId": each.run_id, "message": each.problem} for each in reaped if each.problem],
        }
        console.json("pruned", rows)
    else:
        _say(console, removals, reaped, is_dry_run=is_dry_run)
    return Exit.RECORD if any(each.problem for each in reaped) else Exit.OK


def _say(console: Console, removals: list[Removal], reaped: list[Reaped], *, is_dry_run: bool) -> None:
    would = "would be " if is_dry_run else ""
    gone = [each.run_id for each in removals if each.reason is None]
    for run_id in gone:
        console.result(run_id)
    console.say(f"{len(gone)} runs {would}set aside; {sum(each.problem is None for each in reaped)} {would}removed")
    for reason, count in Counter(each.reason for each in removals if each.reason is not None).most_common():
        console.say(f"  {count} stay: they {_WORDS[reason]}")
    for each in reaped:
        if each.problem is not None:
            console.warn(each.problem)
