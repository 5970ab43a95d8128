"""The snapshot of a session's runs: bounded in every direction, newest first (contract, runs 1.7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from pisub.fleet.jobs import Activity, Job, JobStep, of_session
from pisub.fleet.text import clean_line
from pisub.protocol.fleet import (
    AsyncSnapshot,
    SnapshotActivity,
    SnapshotCaps,
    SnapshotNode,
    SnapshotOmitted,
    encode_json,
)

#: Of the runs that have ended so many are shown, the last ones.
MAX_FINISHED: Final = 20
#: A smaller bound is taken for it: no snapshot says anything in less.
MIN_SERIALIZED_BYTES: Final = 256
_STATES: Final = {"completed": "complete", "pending": "queued"}
_ENDED: Final = frozenset({"complete", "failed", "paused", "stopped", "rejected"})
#: Agents that a run's label names.
_NAMED: Final = 3


def build_snapshot(
    jobs: Sequence[Job], session_id: str | None, *, generated_at: int, caps: SnapshotCaps | None = None
) -> AsyncSnapshot:
    """Return the snapshot of a session's runs.

    Args:
        jobs: Runs, as ``jobs_of`` returns them: those that go on, and those that ended.
        session_id: The session that counts; None is none, and the snapshot is empty.
        generated_at: Unix time in milliseconds.
        caps: Other bounds than the contract's. ``max_serialized_bytes`` is at least 256.
    """
    bounds = caps or SnapshotCaps()
    if bounds.max_serialized_bytes < MIN_SERIALIZED_BYTES:
        bounds = msgspec.structs.replace(bounds, max_serialized_bytes=MIN_SERIALIZED_BYTES)
    chosen = _chosen(of_session(jobs, session_id))
    nodes = [_run(job, bounds) for job in chosen[: bounds.max_runs]]

    def first(count: int, *, is_cut: bool) -> AsyncSnapshot:
        return AsyncSnapshot(
            generated_at=generated_at,
            caps=bounds,
            omitted=SnapshotOmitted(
                runs=len(chosen) - count,
                children=sum(omitted for _, omitted in nodes[:count]),
                byte_limit_exceeded=is_cut,
            ),
            runs=tuple(node for node, _ in nodes[:count]),
        )

    whole = first(len(nodes), is_cut=False)
    if len(encode_json(whole)) <= bounds.max_serialized_bytes:
        return whole
    fits, too_many = 0, len(nodes)
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if len(encode_json(first(middle, is_cut=True))) <= bounds.max_serialized_bytes:
            fits = middle
        else:
            too_many = middle
    return first(fits, is_cut=True)


def _chosen(jobs: Sequence[Job]) -> list[Job]:
    """Return each job once, those that changed last first, and of the ended ones only the last."""
    ordered = sorted({job.id: job for job in jobs}.values(), key=_order)
    ended = [job.id for job in ordered if not job.is_active]
    dropped = set(ended[MAX_FINISHED:])
    return [job for job in ordered if job.id not in dropped]


def _order(job: Job) -> tuple[int, str]:
    return -(job.updated_at or job.started_at or 0), job.id


def _run(job: Job, bounds: SnapshotCaps, level: int = 0) -> tuple[SnapshotNode, int]:
    """Return a run's node, and how many nodes below it were left out."""
    text = bounds.max_string_length
    children, omitted = _below(job, bounds, level)
    node = SnapshotNode(
        id=clean_line(job.id, text),
        kind="workflow" if job.mode == "workflow" else "subagent",
        label=clean_line(_label(job), text) or "subagent",
        state=_STATES.get(job.state, job.state),
        started_at=_known(job.started_at),
        updated_at=_known(job.updated_at),
        ended_at=UNSET if job.is_active else _known(job.updated_at),
        activity=_activity(job.activity, text),
        children=children or UNSET,
    )
    return node, omitted


def _below(job: Job, bounds: SnapshotCaps, level: int) -> tuple[tuple[SnapshotNode, ...], int]:
    """Return the steps of a run and the runs that it started, and how many were left out.

    Of a run with one step that step is who started them.
    """
    is_one = len(job.steps) == 1
    own: list[Job] = [] if is_one else list(job.children)
    count = len(job.steps) + len(own)
    if level >= bounds.max_depth:
        return (), count
    omitted = max(0, count - bounds.max_children_per_node)
    nodes = [_step(step, bounds) for step in job.steps[: bounds.max_children_per_node]]
    for child in own[: bounds.max_children_per_node - len(nodes)]:
        node, left = _run(child, bounds, level + 1)
        nodes.append(node)
        omitted += left
    if is_one and job.children and nodes:
        below, left = _runs(job.children, bounds, level + 1)
        nodes[0] = msgspec.structs.replace(nodes[0], children=below or UNSET)
        omitted += left
    return tuple(nodes), omitted


def _runs(jobs: Sequence[Job], bounds: SnapshotCaps, level: int) -> tuple[tuple[SnapshotNode, ...], int]:
    if level >= bounds.max_depth:
        return (), len(jobs)
    made = [_run(child, bounds, level + 1) for child in jobs[: bounds.max_children_per_node]]
    return tuple(node for node, _ in made), len(jobs) - len(made) + sum(left for _, left in made)


def _step(step: JobStep, bounds: SnapshotCaps) -> SnapshotNode:
    state = _STATES.get(step.status, step.status)
    text = bounds.max_string_length
    return SnapshotNode(
        id=clean_line(step.workflow_key or step.run_id or "", text) or f"step:{step.index}",
        kind="step",
        label=clean_line(step.label, text) or clean_line(step.agent, text),
        state=state,
        started_at=_known(step.started_at),
        ended_at=_known(step.ended_at) if state in _ENDED else UNSET,
    )


def _label(job: Job) -> str:
    agents = [step.agent for step in job.steps] or list(job.agents)
    more = f", +{len(agents) - _NAMED} more" if len(agents) > _NAMED else ""
    return ", ".join(agents[:_NAMED]) + more or job.mode


def _activity(activity: Activity, text: int) -> SnapshotActivity | UnsetType:
    known = SnapshotActivity(
        state=activity.state or UNSET,
        current_tool=clean_line(activity.current_tool or "", text) or UNSET,
        last_activity_at=_known(activity.last_activity_at),
        current_tool_started_at=_known(activity.current_tool_started_at),
        turn_count=activity.turn_count or UNSET,
        tool_count=activity.tool_count or UNSET,
    )
    return UNSET if known == SnapshotActivity() else known


def _known(value: int | None) -> int | UnsetType:
    return UNSET if value is None else value
