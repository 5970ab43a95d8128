"""How a run is told to pause: it ends, as paused, and can be resumed. A file, then a nudge."""

from __future__ import annotations

from pisub.errors import RefusedError
from pisub.process import own_identity
from pisub.protocol.runs import RunState
from pisub.record.control import request_control
from pisub.record.layout import Layout
from pisub.record.model import ControlRequest
from pisub.record.reader import RunView


def request_interrupt(layout: Layout, view: RunView, *, source: str, reason: str, now_ms: int) -> None:
    """Write the interrupt file. A stop or timeout that was accepted before, or comes later, is stronger.

    Raises:
        RefusedError: The run does not work now (``run_not_running``), or its agent is a program that cannot go on
            where it was (``interrupt_unsupported``). Nothing was written.
    """
    if view.state is not RunState.RUNNING or view.is_unknown:
        raise RefusedError(
            f"Run {view.run_id} is {'unknown' if view.is_unknown else view.state}: only one that works can be "
            "interrupted.",
            code="run_not_running",
        )
    if view.spec.agent.runner.type == "external-cli":
        raise RefusedError(
            f"Agent {view.spec.agent.name} is a program (external-cli), which cannot go on where it was: stop it.",
            code="interrupt_unsupported",
        )
    request = ControlRequest(type="interrupt", requested_at=now_ms, by=own_identity(), source=source, reason=reason)
    request_control(layout.run(view.run_id), request)
