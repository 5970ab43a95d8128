"""Plays the file that a crashed broker left to another core: what was a bug somewhere is a test here.

``replay(load(path))`` raises what ended the broker, for as long as the bug is there.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from broker.core import Core
from broker.crash import CrashReport
from broker.history import Entry, Frames, Happened, Retried, SendsFailed, Ticked


def load(path: Path) -> CrashReport:
    """Read a crash file."""
    return msgspec.json.decode(path.read_bytes(), type=CrashReport)


def replay(report: CrashReport) -> Core:
    """Make a core like the one that crashed, and tell it the same."""
    core = Core(epoch=report.epoch, broker=report.broker, now=report.started_at, limits=report.limits)
    for entry in report.entries:
        tell(core, entry)
    return core


def tell(core: Core, entry: Entry) -> None:
    match entry:
        case Frames(at, frames):
            core.handle_batch([(each.route, each.frame) for each in frames], at)
        case Happened(at, event):
            core.handle(event, at)
        case Ticked(at):
            core.tick(at)
        case SendsFailed(at, failed):
            core.sends_failed([each.failed for each in failed], at)
        case Retried(route, limit, sent):
            core.next_queued(route, limit)
            core.handed_over(route, sent)
