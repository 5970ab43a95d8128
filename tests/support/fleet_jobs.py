"""Jobs for tests of the fleet and the snapshot."""

from __future__ import annotations

from typing import Any

from pisub.fleet.jobs import Job, JobStep
from pisub.protocol.runs import RunState

SESSION = "s"
NOW_MS = 1_800_000_000_000


def step(index: int = 0, agent: str = "worker", status: str = "running", **fields: Any) -> JobStep:
    return JobStep(index=index, agent=agent, status=status, **{"started_at": NOW_MS, **fields})


def job(run_id: str = "r", *steps: JobStep, session_id: str = SESSION, state: str = "running", **fields: Any) -> Job:
    return Job(
        id=run_id,
        session_id=session_id,
        state=RunState(state),
        steps=steps,
        **{"agents": tuple(each.agent for each in steps) or ("worker",), "started_at": NOW_MS, **fields},
    )
