"""Whose the end of a run below a run is: its parent's, while that one can still take it; else the session's host's.

Decided from what the two records say, so that it is the same whenever and by whomever it is asked: a parent that has
ended by itself had in hands what ended before; what outlived it, or was left by one that died, nobody else would tell.
"""

from __future__ import annotations

import enum

from pisub.errors import PisubError, UnknownRunError
from pisub.record.layout import Layout
from pisub.record.model import Completion
from pisub.record.reader import read_run
from pisub.record.results import read_result
from pisub.runs.cascade import ANCESTOR_REASONS


class Whose(enum.Enum):
    """Who gets an end."""

    HOST = "host"
    PARENT = "parent"
    #: The parent goes on: it may still die, and then it is the host's.
    UNDECIDED = "undecided"


def whose_end(layout: Layout, completion: Completion) -> Whose:
    """Return who gets an end. Reads a few files for that of a nested run, none for another."""
    if completion.parent_run_id is None:
        return Whose.HOST
    try:
        parent = read_run(layout, completion.parent_run_id)
        if not parent.state.is_terminal or parent.result is None:
            return Whose.UNDECIDED
        result = read_result(layout.run(completion.run_id))
    except UnknownRunError:
        return Whose.HOST  # the parent was removed as old
    except PisubError:
        return Whose.HOST  # nobody can tell: told once too often is better than never
    if result is not None and result.reason in ANCESTOR_REASONS.values():
        return Whose.PARENT  # the end of the one above says it
    has_died = parent.result.reported_by != "runner"
    return Whose.HOST if has_died or completion.ended_at > parent.result.ended_at else Whose.PARENT
