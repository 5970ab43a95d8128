"""What a session's clients see of its active work: the fleet status, and the snapshot of its runs.

The fleet status is for display: it names no run. The snapshot names runs by their ids. Neither holds a task, a path or
an error. Clients ignore keys that they do not know.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from pisub.protocol.base import Part

SNAPSHOT_KIND: Final = "pi-subagents.async-status-snapshot"


class FleetTokens(Part, frozen=True, kw_only=True, omit_defaults=False):
    """Whole numbers from 0 to 2^53 - 1. ``total`` is at least ``input`` and ``output`` together."""

    input: int = 0
    output: int = 0
    total: int = 0


class FleetEntry(Part, frozen=True, kw_only=True, omit_defaults=False):
    """One child at work.

    Attributes:
        key: Names it while it is active: ``fleet-<n>``. It says nothing about the run.
        started_at: Unix time in milliseconds.
        goal: What its caller says that it is for.
    """

    key: str
    agent: str
    role: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    effort: str | UnsetType = UNSET
    started_at: int
    tokens: FleetTokens
    goal: str | UnsetType = UNSET


class Capacity(Part, frozen=True, kw_only=True, omit_defaults=False):
    """Detached runs that count against the session's limit, and that limit; 0 is none."""

    used: int = 0
    limit: int = 0


class FleetStatus(Part, frozen=True, kw_only=True, omit_defaults=False):
    """The active children of one session, oldest first; ``omitted`` of ``total_active`` are not among them."""

    version: Literal[1] = 1
    entries: tuple[FleetEntry, ...] = ()
    total_active: int = 0
    omitted: int = 0
    top_level_async_capacity: Capacity = Capacity()


class SnapshotActivity(Part, frozen=True, kw_only=True, omit_defaults=False):
    """What a node does now. Moments are Unix time in milliseconds."""

    state: str | UnsetType = UNSET
    current_tool: str | UnsetType = UNSET
    last_activity_at: int | UnsetType = UNSET
    current_tool_started_at: int | UnsetType = UNSET
    turn_count: int | UnsetType = UNSET
    tool_count: int | UnsetType = UNSET


class SnapshotNode(Part, frozen=True, kw_only=True, omit_defaults=False):
    """A run, or a step of one. Moments are Unix time in milliseconds; ``ended_at`` only where it has ended.

    Attributes:
        id: The run's id; of a step its key in the workflow, else its run's id, else ``step:<index>``.
    """

    id: str
    kind: Literal["subagent", "workflow", "step"]
    label: str
    state: str
    started_at: int | UnsetType = UNSET
    updated_at: int | UnsetType = UNSET
    ended_at: int | UnsetType = UNSET
    activity: SnapshotActivity | UnsetType = UNSET
    children: tuple[SnapshotNode, ...] | UnsetType = UNSET


class SnapshotCaps(Part, frozen=True, kw_only=True, omit_defaults=False):
    """The bounds of a snapshot. ``max_string_length`` counts UTF-16 units, ``max_depth`` the levels below a run."""

    max_runs: int = 20
    max_children_per_node: int = 8
    max_depth: int = 3
    max_string_length: int = 160
    max_serialized_bytes: int = 32 * 1024


class SnapshotOmitted(Part, frozen=True, kw_only=True, omit_defaults=False):
    """What a snapshot left out, and whether its size was why."""

    runs: int = 0
    children: int = 0
    byte_limit_exceeded: bool = False


class AsyncSnapshot(Part, frozen=True, kw_only=True, omit_defaults=False):
    """The runs of one session, those that changed last first."""

    kind: str = SNAPSHOT_KIND
    version: Literal[1] = 1
    generated_at: int
    caps: SnapshotCaps = SnapshotCaps()
    omitted: SnapshotOmitted = SnapshotOmitted()
    runs: tuple[SnapshotNode, ...] = ()


#: As JSON of fewest bytes: what a snapshot's bound counts.
encode_json: Final = msgspec.json.Encoder().encode
