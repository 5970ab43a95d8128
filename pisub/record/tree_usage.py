"""What a run and all below it have used of models, as their files say now."""

from __future__ import annotations

from pisub.errors import RefusedError, UnknownRunError
from pisub.record.layout import Layout
from pisub.record.reader import RunView, read_run
from pisub.record.tree import descendants
from pisub.runs.usage import Usage
from pisub.runs.usage_budget import EXHAUSTED, UsageBudget, remaining, stricter, usage_state


def usage_of(view: RunView) -> Usage:
    """Return what one run has used: as its result says, else its status."""
    for each in (view.result, view.status):
        if each is not None and each.usage is not None:
            return each.usage
    return Usage()


def tree_usage(layout: Layout, run: RunView) -> Usage:
    """Return what a run and all below it have used."""
    total = usage_of(run)
    for spec in descendants(layout, run.run_id):
        total = total.plus(usage_of(read_run(layout, spec.run_id)))
    return total


def budget_below(layout: Layout, parent: RunView | None, asked: UsageBudget | None) -> UsageBudget | None:
    """Return what a new run may use: what it is given, and what every run above it has left.

    Raises:
        RefusedError: One of them has nothing left (``usage_budget_exhausted``).
    """
    while parent is not None:
        budget = parent.spec.usage_budget
        if budget is not None:
            used = tree_usage(layout, parent)
            if usage_state(budget, used).exhausted:
                raise RefusedError(
                    f"Usage budget exhausted: run {parent.run_id} and those below it have used what they may.",
                    code=EXHAUSTED,
                )
            asked = stricter(asked, remaining(budget, used))
        above = parent.spec.parent_run_id
        try:
            parent = None if above is None else read_run(layout, above)
        except UnknownRunError:  # removed as old
            parent = None
    return asked
