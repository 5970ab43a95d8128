"""The fleet status: who is at work in a session, for display. Bounds, order and keys are the contract's (runs 1.6).

Owns the keys: ``fleet-<n>``, kept while a child is active, never given twice in one session, never made from an id.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Final, TypeGuard, cast

import msgspec
from msgspec import UNSET, UnsetType

from pisub.fleet.jobs import ACTIVE_STEPS, MAX_SAFE, Job, JobStep, of_session
from pisub.fleet.text import clean_line
from pisub.protocol.fleet import Capacity, FleetEntry, FleetStatus, FleetTokens

MAX_ENTRIES: Final = 16
#: So many are sorted; what comes after them is only counted.
MAX_CANDIDATES: Final = 256
MAX_AGENT_UNITS: Final = 96
MAX_GOAL_UNITS: Final = 512
MAX_MODEL_UNITS: Final = 128
#: The agent's name where nothing better is known.
_NAMELESS: Final = "subagent"


class FleetKeys:
    """The keys of one session after another. Whoever answers for a session keeps one for as long as it does."""

    def __init__(self) -> None:
        self._session_id: str | None = None
        self._keys: dict[str, str] = {}
        self._last = 0

    def begin(self, session_id: str | None) -> None:
        """Go on with a session. Another one than before begins at 1."""
        if session_id != self._session_id:
            self._session_id = session_id
            self._keys.clear()
            self._last = 0

    def forget(self) -> None:
        """Let every key go; numbers are not given again."""
        self._keys.clear()

    def keep(self, active: Collection[str]) -> None:
        """Let go of the keys of children that are not among these."""
        self._keys = {child: key for child, key in self._keys.items() if child in active}

    def key(self, child: str) -> str:
        """Return a child's key, a new one where it has none."""
        if child not in self._keys:
            self._last += 1
            self._keys[child] = f"fleet-{self._last}"
        return self._keys[child]


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A child that may become an entry. ``child`` names it inside; its fields are not checked yet."""

    child: str
    agent: object
    role: object = ""
    model: object = None
    effort: object = None
    started_at: object
    tokens: object = FleetTokens()
    goal: object = ""


def build_fleet(
    jobs: Sequence[Job], session_id: str | None, keys: FleetKeys, capacity: Capacity | None = None
) -> FleetStatus:
    """Return the fleet status of a session.

    Args:
        jobs: Runs, as ``jobs_of`` returns them. Those of other sessions, and of none, are not counted.
        session_id: The session that counts; None is none, and all of the status is zero.
        keys: The session's keys; brought up to date.
        capacity: Detached runs that count against the session's limit.
    """
    keys.begin(session_id)
    if not session_id:
        keys.forget()
        return FleetStatus()
    active = [job for job in of_session(jobs, session_id) if job.is_active]
    # Those that somebody waits for come first, as far as so many are looked at at all.
    active.sort(key=lambda job: not job.is_foreground)
    candidates = [each for job in active for each in expand(job)]
    return fleet_of(candidates, keys, capacity or Capacity())


def fleet_of(candidates: Sequence[Candidate], keys: FleetKeys, capacity: Capacity) -> FleetStatus:
    """Return the status of these children, the first 256 of which may be shown."""
    keys.keep({each.child for each in candidates})
    entries: list[FleetEntry] = []
    for each in sorted(candidates[:MAX_CANDIDATES], key=_order):
        entry = _entry(each, keys)
        if entry is not None:
            entries.append(entry)
        if len(entries) == MAX_ENTRIES:
            break
    return FleetStatus(
        entries=tuple(entries),
        total_active=len(candidates),
        omitted=max(0, len(candidates) - len(entries)),
        top_level_async_capacity=capacity,
    )


def expand(job: Job) -> Iterator[Candidate]:
    """Yield the active children of a job: one for each step that is at work, else the job as one."""
    if job.mode == "workflow":
        yield _whole(job, "workflow")
        return
    steps = job.steps
    if not steps and len(job.agents) > 0:
        status = "pending" if job.state == "queued" else "running"
        steps = tuple(JobStep(index=at, agent=agent, status=status) for at, agent in enumerate(job.agents))
    shown = [step for step in steps if step.status in ACTIVE_STEPS and not _is_hidden(step, job)]
    if not shown and (not steps or job.is_foreground):
        yield _whole(job, job.agents[0] if job.is_foreground and job.agents else job.mode or _NAMELESS)
    for step in shown:
        yield Candidate(
            child=f"{job.id}:{step.index}",
            agent=step.agent,
            role=step.role,
            model=step.model or job.model,
            effort=step.effort or job.effort,
            started_at=job.started_at if step.started_at is None else step.started_at,
            tokens=step.tokens,
            goal=job.goal,
        )


def _is_hidden(step: JobStep, job: Job) -> bool:
    """Whether a step of a chain is not its turn yet."""
    is_waiting = job.mode == "chain" and step.status == "pending"
    return is_waiting and step.index != job.current_step and not job.is_parallel


def _whole(job: Job, agent: str) -> Candidate:
    return Candidate(
        child=job.id,
        agent=agent,
        model=job.model,
        effort=job.effort,
        started_at=job.started_at,
        tokens=job.tokens,
        goal=job.goal,
    )


def _order(candidate: Candidate) -> tuple[bool, float, str]:
    at = candidate.started_at
    is_number = isinstance(at, int | float) and not isinstance(at, bool) and not math.isnan(at)
    return not is_number, cast("float", at) if is_number else 0, candidate.child


def _entry(candidate: Candidate, keys: FleetKeys) -> FleetEntry | None:
    agent = _clean(candidate.agent, MAX_AGENT_UNITS)
    at = candidate.started_at
    if agent is UNSET or not is_moment(at):
        return None
    return FleetEntry(
        key=keys.key(candidate.child),
        agent=agent,
        role=_clean(candidate.role, MAX_AGENT_UNITS),
        model=_clean(candidate.model, MAX_MODEL_UNITS),
        effort=_clean(candidate.effort, MAX_MODEL_UNITS),
        started_at=at,
        tokens=safe_tokens(candidate.tokens),
        goal=_clean(candidate.goal, MAX_GOAL_UNITS),
    )


def _clean(value: object, max_units: int) -> str | UnsetType:
    return (clean_line(value, max_units) if isinstance(value, str) else "") or UNSET


def is_moment(value: object) -> TypeGuard[int]:
    """Tell whether a value is a whole number of milliseconds that JavaScript holds exactly. True is none."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_SAFE


def safe_tokens(tokens: object) -> FleetTokens:
    """Return counts that JavaScript holds exactly: floored, 0 for what is none, ``total`` never below the sum."""
    given = [_count(getattr(tokens, name, 0)) for name in ("input", "output", "total")]
    return FleetTokens(input=given[0], output=given[1], total=min(MAX_SAFE, max(given[0] + given[1], given[2])))


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0 or math.isinf(value):
        return 0
    return min(MAX_SAFE, math.floor(value))
