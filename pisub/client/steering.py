"""How a message gets to a working child, and what its sender reads of it. Files; no loop, no broker."""

from __future__ import annotations

from typing import Final

from pisub.client.views import current_view
from pisub.errors import InvalidArgumentError, RefusedError
from pisub.protocol.runs import RunState
from pisub.record.layout import Layout
from pisub.record.reader import RunView
from pisub.record.recovery import read_recovery
from pisub.record.steering import SteerRequest, is_inbox_closed, is_waiting, make_request, read_acks, request_steer
from pisub.record.supervisor import pending_of
from pisub.runs.receipts import Receipt, TargetState, receipt_of, target_of
from pisub.runs.steering import Mode

#: A plain run has one child.
_INDEX: Final = 0
#: What a sender waits for: the child has it, will have it, or will never have it.
_SETTLED: Final = frozenset(
    {
        TargetState.SCHEDULED,
        TargetState.QUEUED,
        TargetState.DELIVERED,
        TargetState.LATE,
        TargetState.FAILED,
        TargetState.RECOVERED,
    }
)


def mode_named(name: str) -> Mode:
    """Return the mode with this name.

    Raises:
        InvalidArgumentError: There is none.
    """
    try:
        return Mode(name)
    except ValueError:
        raise InvalidArgumentError(f"{name!r} is no mode: use {', '.join(Mode)}.", field="mode") from None


def send_message(
    layout: Layout,
    run_id: str,
    message: str,
    *,
    now_ms: int,
    mode: Mode = Mode.STEER,
    request_id: str | None = None,
    source: str = "",
) -> tuple[RunView, SteerRequest]:
    """Write a message for a run's child. From here on it is delivered, or said to have failed.

    Raises:
        InvalidArgumentError: A bound is broken; ``field`` says which.
        UnknownRunError: There is no such run.
        RefusedError: The run is over (code ``inbox_closed``), its agent takes no messages at all
            (``steering_unsupported``), or waits for a reply of its supervisor (``supervisor_pending``: the message has
            that request's id).
    """
    request = make_request(message, now_ms=now_ms, mode=mode, request_id=request_id, source=source)
    view = current_view(layout, run_id, now_ms=now_ms)
    if view.state.is_terminal:
        raise RefusedError(
            f"Run {run_id} is {view.state}: it takes no messages (`pisub resume` goes on with it).", code="inbox_closed"
        )
    if view.spec.agent.runner.type == "external-cli":
        raise RefusedError(
            f"Agent {view.spec.agent.name} is a program (external-cli), which reads its task once and nothing after "
            "it: stop the run, and start it again with another task.",
            code="steering_unsupported",
        )
    if pending := pending_of(layout, run_id):
        raise RefusedError(
            f"Run {run_id} waits for a reply to its request {pending[0].id} ({pending[0].reason}): `pisub supervisor "
            "reply` gives one; then it takes messages again.",
            code="supervisor_pending",
        )
    request_steer(layout.run(run_id), request)
    return view, request


def read_receipt(layout: Layout, run_id: str, request: SteerRequest, *, now_ms: int) -> Receipt:
    """Read what became of a message so far."""
    paths = layout.run(run_id)
    # The state first: what was said before the end is then in what is read.
    view = current_view(layout, run_id, now_ms=now_ms)
    target = target_of(
        _INDEX,
        read_acks(paths, request.id, _INDEX),
        has_begun=view.state is not RunState.QUEUED,
        is_over=view.state.is_terminal and is_inbox_closed(paths),
        is_taken=not is_waiting(paths, request),
        recovery=read_recovery(paths, request.id),
    )
    return receipt_of(run_id, request.id, [target])


def is_settled(receipt: Receipt) -> bool:
    """Tell whether there is nothing to wait for: every child has it, has it queued, or will not get it."""
    return all(target.state in _SETTLED for target in receipt.targets)
