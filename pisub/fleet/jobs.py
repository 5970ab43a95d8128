"""What the fleet and the snapshot are made of: a session's runs as jobs with steps, taken from what the record says.

A job knows no task, no path and no error, so none can leave by what is built of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from pisub.protocol.fleet import FleetTokens
from pisub.protocol.runs import RunState
from pisub.record.model import RunStatus, Step
from pisub.record.reader import RunView

#: States of a step that is at work, or will be.
ACTIVE_STEPS = frozenset({"running", "queued", "pending"})
#: A whole number up to it is the same in JavaScript.
MAX_SAFE = 2**53 - 1


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """What a run or step does now."""

    state: str | None = None
    current_tool: str | None = None
    last_activity_at: int | None = None
    current_tool_started_at: int | None = None
    turn_count: int = 0
    tool_count: int = 0


class JobStep(msgspec.Struct, frozen=True, kw_only=True):
    """One child session of a job; ``status`` as in the record."""

    index: int
    agent: str
    status: str
    run_id: str | None = None
    workflow_key: str | None = None
    label: str = ""
    role: str = ""
    model: str | None = None
    effort: str | None = None
    started_at: int | None = None
    ended_at: int | None = None
    tokens: FleetTokens = FleetTokens()


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One run.

    Attributes:
        is_foreground: It ends with the process that started it.
        agents: Who works in it, where it has no steps yet.
        current_step: Of a chain, the step that is its turn.
        is_parallel: A parallel group of it is active.
        goal: What its caller says that it is for.
        children: Runs that it started.
    """

    id: str
    session_id: str
    mode: str = "single"
    state: RunState
    is_foreground: bool = False
    agents: tuple[str, ...] = ()
    steps: tuple[JobStep, ...] = ()
    current_step: int = 0
    is_parallel: bool = False
    model: str | None = None
    effort: str | None = None
    goal: str = ""
    started_at: int | None = None
    updated_at: int | None = None
    tokens: FleetTokens = FleetTokens()
    activity: Activity = Activity()
    children: tuple[Job, ...] = ()

    @property
    def is_active(self) -> bool:
        """Whether it is queued or running. A paused run is over: what goes on with it is another one."""
        return not self.state.is_terminal


def jobs_of(views: Iterable[RunView]) -> list[Job]:
    """Return a session's runs as jobs, oldest first; a run is below the one that started it, where that is here too.

    One whose starter has ended stands by itself while it goes on: nobody else shows it.
    """
    known = {view.run_id: view for view in sorted(views, key=lambda view: view.run_id)}
    below: dict[str, list[RunView]] = {}
    tops: list[RunView] = []
    for view in known.values():
        parent = known.get(view.spec.parent_run_id or "")
        is_orphan = parent is None or (parent.state.is_terminal and not view.state.is_terminal)
        if parent is None or is_orphan:
            tops.append(view)
        else:
            below.setdefault(parent.run_id, []).append(view)
    return [_job(view, below, frozenset()) for view in tops]


def _job(view: RunView, below: dict[str, list[RunView]], above: frozenset[str]) -> Job:
    spec, status = view.spec, view.status
    line = above | {view.run_id}
    is_over = view.state.is_terminal
    effort = None if spec.launch is None else spec.launch.thinking
    started_at = spec.submitted_at if view.started is None else view.started.started_at
    steps = () if status is None else tuple(_step(each, view, effort) for each in status.steps)
    return Job(
        id=view.run_id,
        session_id=spec.session_id,
        mode="single" if status is None else status.mode,
        state=view.state,
        is_foreground=spec.attached_to is not None,
        agents=(spec.agent.name,),
        steps=steps,
        effort=effort,
        goal=spec.label,
        started_at=started_at,
        updated_at=_updated_at(view, started_at),
        activity=Activity() if status is None else _activity(status, is_over=is_over),
        children=tuple(_job(each, below, line) for each in below.get(view.run_id, ()) if each.run_id not in line),
    )


def _updated_at(view: RunView, started_at: int) -> int:
    if view.result is not None:
        return view.result.ended_at
    return started_at if view.status is None else view.status.last_update


def _step(step: Step, view: RunView, effort: str | None) -> JobStep:
    spec = view.spec
    tokens = step.tokens
    # What the status says of a run that has ended meanwhile is older than that end.
    is_stale = view.state.is_terminal and step.status in ACTIVE_STEPS
    return JobStep(
        index=step.index,
        agent=step.agent,
        status=view.state.value if is_stale else step.status,
        label=step.label,
        role="" if step.label == spec.label else step.label,
        model=step.model,
        effort=effort,
        started_at=step.started_at,
        ended_at=step.ended_at,
        tokens=FleetTokens() if tokens is None else FleetTokens(**msgspec.structs.asdict(tokens)),
    )


def _activity(status: RunStatus, *, is_over: bool) -> Activity:
    return Activity(
        state=None if is_over else status.activity_state,
        current_tool=None if is_over else status.current_tool,
        last_activity_at=status.last_activity_at,
        current_tool_started_at=None if is_over else status.current_tool_started_at,
        turn_count=status.turn_count,
        tool_count=status.tool_count,
    )


def of_session(jobs: Sequence[Job], session_id: str | None) -> list[Job]:
    """Return the jobs of exactly this session; none of none, and none of nobody."""
    return [job for job in jobs if session_id and job.session_id == session_id]
