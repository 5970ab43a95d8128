"""Where a run stands below those that delegated to it, and whether it may stand there. Pure: no file, no environment.

Depth counts delegations: a person's or a program's run has depth 0, its child 1. What is at depth n was asked for by
somebody at depth n, as ``PISUB_DEPTH`` says it: a run's own processes are one deeper than the run. Who stands as deep
as the limit, or deeper, may not delegate, so 0 turns delegation off (contract, runs 5.1). Limits only tighten on the
way down.
"""

from __future__ import annotations

import msgspec

from pisub.errors import RefusedError
from pisub.runs.spec import RunSpec


class Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """A run's place.

    Attributes:
        depth: How many runs are above it.
        max_depth: How deep its own processes may delegate.
        parent_run_id: The run that asked for it; None for a person's or a program's.
        root_run_id: The first run above it; None where it is that itself.
    """

    depth: int
    max_depth: int
    parent_run_id: str | None = None
    root_run_id: str | None = None


def lineage(
    parent: RunSpec | None, *, max_depth: int, agent_max_depth: int | None = None, outer_depth: int = 0
) -> Lineage:
    """Return the place of a run that ``parent`` asks for.

    Args:
        parent: The run whose process asks; None where it is no run's.
        max_depth: The setting of whoever asks.
        agent_max_depth: What the new run's agent allows at most (``maxSubagentDepth``); it binds what the run starts,
            not the run.
        outer_depth: Without a parent on record: how deep the environment says that the asker stands.

    Raises:
        RefusedError: It would be too deep (``depth_exceeded``).
    """
    depth = outer_depth if parent is None else parent.depth + 1
    limit = max_depth if parent is None else min(parent.max_depth, max_depth)
    check_depth(depth, limit)
    return Lineage(
        depth=depth,
        max_depth=limit if agent_max_depth is None else min(limit, agent_max_depth),
        parent_run_id=None if parent is None else parent.run_id,
        root_run_id=None if parent is None else parent.root_run_id or parent.run_id,
    )


def check_depth(depth: int, limit: int) -> None:
    """Pass for a depth below the limit.

    Raises:
        RefusedError: It is not (``depth_exceeded``).
    """
    if depth < limit:
        return
    if limit == 0:
        sentence = "Delegation is turned off here: max_depth (PISUB_MAX_DEPTH, or maxSubagentDepth of an agent) is 0."
    else:
        sentence = (
            f"Delegation goes {limit} deep at most here, and this would go {depth + 1} deep: raise max_depth "
            "(PISUB_MAX_DEPTH, or maxSubagentDepth of an agent above) where the first run is started."
        )
    raise RefusedError(sentence, code="depth_exceeded")
