"""A run's ceiling, enforced a second time: by the process that carries the run out, on what its record says.

The first time is at the launch. Here nothing is believed that could be wider: the ceiling of the run above is read
again and met with the run's own, and whatever the spec grants beyond both is taken away.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pisub.agents.definition import may_ask
from pisub.engines.base import Settled
from pisub.record.atomic import read_record
from pisub.record.layout import Layout
from pisub.runs.ceilings import RESTRICTED_AGENT, CapabilityCeiling, intersect, refusal
from pisub.runs.spec import RunSpec


def enforced(layout: Layout, spec: RunSpec) -> RunSpec:
    """Return a spec with no right that its ceiling, or that of the run above it, does not leave.

    Raises:
        RecordCorruptError: The run above is there and its ceiling cannot be read: nothing runs without it.
    """
    ceiling = intersect((spec.capability_ceiling, _inherited(layout, spec)))
    if ceiling is None:
        return spec
    launch = spec.launch
    if launch is not None and launch.effective_tools is not None:
        own = () if spec.capability_audit is None else spec.capability_audit.internal_tools
        left = tuple(each for each in launch.effective_tools if each in own or ceiling.allows_tool(each))
        launch = msgspec.structs.replace(launch, effective_tools=left)
    agent = msgspec.structs.replace(spec.agent, can_ask=may_ask(spec.agent.can_ask, ceiling.allows_asking))
    return msgspec.structs.replace(spec, agent=agent, launch=launch, capability_ceiling=ceiling)


def forbidden(spec: RunSpec) -> Settled | None:
    """Return how a run ends whose agent its ceiling does not allow; None for one that may run."""
    ceiling = spec.capability_ceiling
    if ceiling is None or ceiling.allows_agent(spec.agent.name):
        return None
    return Settled(error=refusal(ceiling, spec.agent.name), reason=RESTRICTED_AGENT)


def applied(spec: RunSpec) -> dict[str, Any] | None:
    """Return the data of ``subagent.capability-ceiling.applied``; None without a ceiling. No path is in it."""
    if spec.capability_ceiling is None:
        return None
    return {
        "stepIndex": 0,
        "ceiling": msgspec.to_builtins(spec.capability_ceiling),
        "audit": msgspec.to_builtins(spec.capability_audit),
    }


def _inherited(layout: Layout, spec: RunSpec) -> CapabilityCeiling | None:
    if spec.parent_run_id is None:
        return None
    parent = read_record(layout.run(spec.parent_run_id).spec, RunSpec)
    return None if parent is None else parent.capability_ceiling
