"""Runs below runs as lists draw them: bounded in width and depth, with what was left out counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from pisub.cli.summary import RunSummary
from pisub.protocol.limits import MAX_CHILDREN_SHOWN, MAX_LEVELS_SHOWN


class Branch(msgspec.Struct, frozen=True):
    """One run and what is shown below it.

    Attributes:
        summary: The run.
        children: At most ``limits.MAX_CHILDREN_SHOWN``, oldest first, ``limits.MAX_LEVELS_SHOWN`` levels deep.
        omitted: Children that are not shown.
    """

    summary: RunSummary
    children: tuple[Branch, ...] = ()
    omitted: int = 0

    def document(self) -> dict[str, Any]:
        """Return it for ``--json``: the summary's fields, ``children`` and ``omittedChildren``."""
        own: dict[str, Any] = msgspec.to_builtins(self.summary)
        return {**own, "children": [each.document() for each in self.children], "omittedChildren": self.omitted}

    def walk(self, level: int = 0) -> Iterator[tuple[int, RunSummary | int]]:
        """Yield this run and those below it with their levels; in place of what is left out, how many that are."""
        yield level, self.summary
        for each in self.children:
            yield from each.walk(level + 1)
        if self.omitted:
            yield level + 1, self.omitted


def grow(summaries: Sequence[RunSummary]) -> list[Branch]:
    """Return the tops of some runs, in their order: those whose parents are not among them, with the rest below."""
    by_parent: dict[str, list[RunSummary]] = {}
    known = {each.run_id for each in summaries}
    for each in summaries:
        if each.parent_run_id in known:
            by_parent.setdefault(each.parent_run_id or "", []).append(each)
    return [_branch(each, by_parent, 0) for each in summaries if each.parent_run_id not in known]


def indent(level: int) -> str:
    """Return what stands before a run at a level."""
    return "  " * (level - 1) + "└ " if level else ""


def _branch(summary: RunSummary, by_parent: dict[str, list[RunSummary]], level: int) -> Branch:
    children = sorted(by_parent.get(summary.run_id, ()), key=lambda each: each.run_id)
    shown = children[:MAX_CHILDREN_SHOWN] if level < MAX_LEVELS_SHOWN else []
    return Branch(
        summary, tuple(_branch(each, by_parent, level + 1) for each in shown), omitted=len(children) - len(shown)
    )
