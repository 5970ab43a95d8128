"""Which ends of a run can be gone on with. Pure."""

from __future__ import annotations

from typing import assert_never

from pisub.errors import RefusedError
from pisub.protocol.runs import RunState
from pisub.record.reader import RunView


def check_resumable(source: RunView) -> None:
    """Pass for a run whose end allows it.

    Raises:
        RefusedError: It was stopped (``run_stopped``), goes on (``run_not_ended``), or its agent keeps no session here
            (``resume_unsupported``).
    """
    match source.state:
        case RunState.STOPPED:
            raise RefusedError(
                f"Run {source.run_id} was stopped, and what was stopped is not gone on with: run its agent again.",
                code="run_stopped",
            )
        case RunState.RUNNING | RunState.QUEUED:
            raise RefusedError(
                f"Run {source.run_id} is {source.state}: tell its agent with `pisub steer`, or interrupt it first.",
                code="run_not_ended",
            )
        case RunState.REJECTED:
            raise RefusedError(f"Run {source.run_id} was rejected: it has nothing to go on with.", code="run_rejected")
        case RunState.COMPLETE | RunState.FAILED | RunState.PAUSED:
            pass
        case _:
            assert_never(source.state)
    if source.spec.agent.runner.type == "external-cli":
        raise RefusedError(
            f"Agent {source.spec.agent.name} is a program (external-cli), which keeps no session: run it again.",
            code="resume_unsupported",
        )
