"""A child's request to the session that started it: written down, and its end waited for.

Owns the wait. What may be said is ``pisub.runs.supervision``'s, the files are ``pisub.record.supervisor``'s.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from pisub.clock import SystemClock
from pisub.errors import RefusedError, WaitTimeoutError
from pisub.ids import new_id
from pisub.record.layout import Layout
from pisub.record.supervisor import end_request, post_request, read_end
from pisub.runs.supervision import (
    EndKind,
    Reason,
    SupervisorEnd,
    SupervisorReply,
    SupervisorRequest,
    check_request,
    read_reply,
)

#: How often a child looks for its reply (contract: 250 ms).
POLL_S: Final = 0.25


class Contact(msgspec.Struct, frozen=True, kw_only=True):
    """Who contacts its supervisor.

    Attributes:
        run_id: The run.
        session_id: The session that started it.
        agent: Its agent's name.
    """

    run_id: str
    session_id: str
    agent: str


async def contact(
    layout: Layout,
    who: Contact,
    reason: Reason | str,
    message: str = "",
    interview: dict[str, Any] | None = None,
    *,
    timeout_s: float,
) -> SupervisorReply:
    """Tell the supervisor something, and wait for its reply where the reason wants one.

    Raises:
        InvalidArgumentError: What is said breaks a rule. Nothing was written.
        WaitTimeoutError: No reply came in time; the request is closed.
        RefusedError: The request was closed without a reply (``supervisor_cancelled``).
        OSError: It could not be written.
    """
    found = check_request(reason, message, interview)
    now_ms = SystemClock().wall_ms()
    request = SupervisorRequest(
        id=new_id(at_ms=now_ms),
        created_at=now_ms,
        expires_at=now_ms + round(timeout_s * 1000) if found.expects_reply else None,
        reason=found,
        message=message,
        expects_reply=found.expects_reply,
        orchestrator_session_id=who.session_id,
        run_id=who.run_id,
        agent=who.agent,
        interview=interview,
    )
    await asyncio.to_thread(post_request, layout, request)
    if not found.expects_reply:
        return SupervisorReply()
    try:
        async with asyncio.timeout(timeout_s):
            end = await _wait(layout, request)
    except TimeoutError:
        end = _give_up(layout, request, EndKind.EXPIRED)
    except asyncio.CancelledError:
        _give_up(layout, request, EndKind.CANCELLED)
        raise
    match end.kind:
        case EndKind.REPLIED:
            return read_reply(request, end.message)
        case EndKind.EXPIRED:
            raise WaitTimeoutError("Timed out waiting for supervisor reply.", code="supervisor_timeout")
        case _:
            raise RefusedError("Supervisor request cancelled.", code="supervisor_cancelled")


async def _wait(layout: Layout, request: SupervisorRequest) -> SupervisorEnd:
    while True:
        end = await asyncio.to_thread(read_end, layout, request)
        if end is not None:
            return end
        await asyncio.sleep(POLL_S)


def _give_up(layout: Layout, request: SupervisorRequest, kind: EndKind) -> SupervisorEnd:
    """Close the request; a reply that was written a moment before still counts."""
    return end_request(layout, request, kind, "", now_ms=SystemClock().wall_ms())
