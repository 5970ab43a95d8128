"""What a status and a result say of the launch: taken from the run's spec, by these two functions alone.

So the runner, and whoever writes the end of one that died, say the same.
"""

from __future__ import annotations

import msgspec

from pisub.record.model import FanoutBudget, RunResult, RunStatus
from pisub.runs.spec import RunSpec


def status_of_launch(status: RunStatus, spec: RunSpec) -> RunStatus:
    """Return a status with what it says of the launch."""
    facts, ceiling, audit = spec.launch, spec.capability_ceiling, spec.capability_audit
    steps = status.steps
    if ceiling is not None:
        steps = tuple(
            msgspec.structs.replace(each, capability_ceiling=ceiling, capability_audit=audit) for each in steps
        )
    return msgspec.structs.replace(
        status,
        is_nested=spec.parent_run_id is not None,
        run_fanout_budget=FanoutBudget(root_run_id=spec.root_run_id or spec.run_id, limit=spec.max_spawns_per_run),
        context=None if facts is None else facts.context,
        definition_digest=None if facts is None else facts.definition_digest,
        launch_contract_digest=None if facts is None else facts.launch_contract_digest,
        contract_digest=None if facts is None else facts.contract_digest,
        launch_resolved_extensions=None if facts is None else facts.resolved_extensions,
        tool_budget=spec.tool_budget,
        capability_ceiling=ceiling,
        capability_audit=audit,
        steps=steps,
    )


def result_of_launch(result: RunResult, spec: RunSpec) -> RunResult:
    """Return a result with what it says of the launch."""
    facts, ceiling, audit = spec.launch, spec.capability_ceiling, spec.capability_audit
    digest = None if facts is None else facts.launch_contract_digest
    return msgspec.structs.replace(
        result,
        definition_digest=None if facts is None else facts.definition_digest,
        launch_contract_digest=digest,
        contract_digest=None if facts is None else facts.contract_digest,
        capability_ceiling=ceiling,
        capability_audit=audit,
        results=tuple(
            msgspec.structs.replace(
                each, launch_contract_digest=digest, capability_ceiling=ceiling, capability_audit=audit
            )
            for each in result.results
        ),
    )
