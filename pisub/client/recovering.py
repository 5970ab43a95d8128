"""A message that met no answer, and a run that is paused and gone on with for it (contract, runs 4.5).

Only for a direct call that asked for it: whoever forwards requests of others never does this.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from pisub.client.interrupting import request_interrupt
from pisub.client.steering import is_settled, read_receipt
from pisub.clock import SystemClock
from pisub.errors import RefusedError, WaitTimeoutError
from pisub.process import own_identity
from pisub.protocol.runs import RunState
from pisub.record.recovery import Recovered, RecoveryClaim, claim_recovery, drop_recovery, record_recovered
from pisub.runs.receipts import Receipt
from pisub.runs.steering import Mode

if TYPE_CHECKING:
    from pisub.client.runs import Run
    from pisub.record.layout import Layout
    from pisub.record.reader import RunView
    from pisub.record.steering import SteerRequest

#: A run that was interrupted for a message is waited for this long.
PAUSE_S: Final = 15.0


def may_recover(view: RunView, request: SteerRequest) -> bool:
    """Tell whether a run may be paused for a message: of mode steer, to a plain run of nobody's, that works."""
    is_plain = view.spec.parent_run_id is None and request.target_index in (None, 0) and not request.target_indexes
    return request.mode is Mode.STEER and is_plain and view.state is RunState.RUNNING


async def recover(run: Run, layout: Layout, request: SteerRequest) -> Receipt:
    """Pause a run and go on with it in a new one that is told the message, unless its agent answers meanwhile.

    Where the pause is not confirmed no run is started, and the claim stays: a pause that comes late is not gone on
    with twice.

    Raises:
        RefusedError: Somebody does this already (``recovery_claimed``), or the paused run cannot be resumed: it stays
            paused then.
    """
    clock = SystemClock()
    view = await run.view()
    before = read_receipt(layout, run.id, request, now_ms=clock.wall_ms())
    if is_settled(before) or not may_recover(view, request):
        return before
    paths = layout.run(run.id)
    claim = RecoveryClaim(request_id=request.id, committed_at=clock.wall_ms(), by=own_identity())
    if not await asyncio.to_thread(claim_recovery, paths, claim):
        raise RefusedError(f"Run {run.id} is being revived for another message already.", code="recovery_claimed")
    again = read_receipt(layout, run.id, request, now_ms=clock.wall_ms())
    if is_settled(again):  # delivered before the claim: nothing to do
        await asyncio.to_thread(drop_recovery, paths, request.id)
        return again
    try:
        request_interrupt(
            layout, view, source="steering-recovery", reason="a message met no answer", now_ms=clock.wall_ms()
        )
    except BaseException:
        drop_recovery(paths, request.id)
        raise
    await run.wake(view)
    try:
        result = await run.result(PAUSE_S)
    except WaitTimeoutError:
        return read_receipt(layout, run.id, request, now_ms=clock.wall_ms())
    if result.state is RunState.PAUSED:
        replacement = await run.resume(request.message)
        recovered = Recovered(request_id=request.id, replacement_run_id=replacement.id, at=clock.wall_ms())
        await asyncio.to_thread(record_recovered, paths, recovered)
    return read_receipt(layout, run.id, request, now_ms=clock.wall_ms())
