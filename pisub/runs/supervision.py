"""What a child may tell the session that started it, and who is meant by a reply: the rules, without files or time.

Three reasons: ``need_decision`` and ``interview_request`` wait for a reply, ``progress_update`` does not. It is another
channel than asking the human: the session itself replies, which may be a program.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from pisub.errors import InvalidArgumentError
from pisub.protocol.base import Record
from pisub.protocol.limits import MAX_SUPERVISOR_BYTES
from pisub.utf8 import is_utf8

_FENCE = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*", re.DOTALL | re.IGNORECASE)
_MIN_PREFIX = 4


class Reason(enum.StrEnum):
    """Why a child contacts its supervisor."""

    NEED_DECISION = "need_decision"
    INTERVIEW_REQUEST = "interview_request"
    PROGRESS_UPDATE = "progress_update"

    @property
    def expects_reply(self) -> bool:
        """Whether the child waits."""
        return self is not Reason.PROGRESS_UPDATE


class SupervisorRequest(Record, frozen=True, kw_only=True):
    """What a child says. Create-once, by the child.

    Attributes:
        created_at: Unix time in milliseconds; ``expires_at`` likewise, only where a reply is waited for.
        orchestrator_session_id: The session that started the run. No other is shown it.
        child_index: Which child of the run; pisub's runs have one, 0.
        interview: What the child wants to know, in a form of its own; with ``interview_request`` alone.
    """

    type: str = "subagent.supervisor.request"
    id: str
    created_at: int
    expires_at: int | None = None
    reason: Reason
    message: str = ""
    expects_reply: bool
    orchestrator_session_id: str
    run_id: str
    agent: str
    child_index: int = 0
    interview: dict[str, Any] | None = None


class EndKind(enum.StrEnum):
    """What became of a request."""

    REPLIED = "replied"
    SHOWN = "shown"  # a progress update that the session took
    EXPIRED = "expired"
    CANCELLED = "cancelled"  # the child took it back, or its run is over


class SupervisorEnd(Record, frozen=True, kw_only=True):
    """The one end of a request. Create-once, by whoever is first: a reply, the child's patience, its run's end."""

    type: str = "subagent.supervisor.reply"
    request_id: str
    created_at: int
    kind: EndKind
    message: str = ""


class SupervisorReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a child gets.

    Attributes:
        message: The reply; '' for a progress update.
        structured: The reply to an interview as JSON, bare or in a fence; None where it is none.
        parse_error: Why it is none. The reply itself is good all the same.
    """

    message: str = ""
    structured: Any = None
    parse_error: str = ""


class Lifecycle(enum.StrEnum):
    """Where a request stands, as it is found at each look."""

    PENDING = "pending"
    WRONG_SESSION = "wrong-session"
    RESOLVED = "resolved"
    EXPIRED = "expired"
    INACTIVE = "inactive"


def lifecycle(
    request: SupervisorRequest, *, session_id: str, is_ended: bool, is_run_over: bool, now_ms: int
) -> Lifecycle:
    """Return where a request stands. A run that is not known counts as one that works."""
    if request.orchestrator_session_id != session_id:
        return Lifecycle.WRONG_SESSION
    if is_ended:
        return Lifecycle.RESOLVED
    if request.expires_at is not None and now_ms >= request.expires_at:
        return Lifecycle.EXPIRED
    return Lifecycle.INACTIVE if is_run_over else Lifecycle.PENDING


def check_request(reason: str, message: str, interview: dict[str, Any] | None) -> Reason:
    """Check what a child wants to say.

    Raises:
        InvalidArgumentError: The reason is none, the message is missing, the interview is not for this reason or no
            JSON object, or all of it is too large.
    """
    if reason not in list(Reason):
        raise InvalidArgumentError(f"A reason is {', '.join(Reason)}, not {str(reason)[:80]!r}.", field="reason")
    found = Reason(reason)
    if not isinstance(message, str) or not is_utf8(message):  # pyright: ignore[reportUnnecessaryIsInstance]  # an agent passes anything
        raise InvalidArgumentError("The message must be a text.", field="message")
    if found is not Reason.INTERVIEW_REQUEST and not message.strip():
        raise InvalidArgumentError(f"{found} needs a message.", field="message")
    if found is not Reason.INTERVIEW_REQUEST and interview is not None:
        raise InvalidArgumentError("An interview goes with interview_request alone.", field="interview")
    if found is Reason.INTERVIEW_REQUEST and not isinstance(interview, dict):
        raise InvalidArgumentError("interview_request needs the interview, a JSON object.", field="interview")
    try:
        size = len(msgspec.json.encode([message, interview]))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"The interview is no JSON: {error}", field="interview") from error
    if size > MAX_SUPERVISOR_BYTES:
        raise InvalidArgumentError(
            f"A request has at most {MAX_SUPERVISOR_BYTES} bytes, this one {size}.", field="message"
        )
    return found


def choose(
    pending: Sequence[SupervisorRequest], *, reply_to: str | None = None, to: str | None = None
) -> SupervisorRequest:
    """Return the request that a reply is for: by its id, by who asked, or the only one.

    Args:
        pending: Those that wait for a reply.
        reply_to: An id, whole.
        to: The beginning of an id (4 characters or more), an agent's name, or the beginning of a run's id.

    Raises:
        InvalidArgumentError: None fits, or several do; ``field`` says which argument.
    """
    if reply_to is not None:
        fits = [each for each in pending if each.id == reply_to]
        field = "reply_to"
    elif to is not None:
        wanted = to.casefold()
        fits = [each for each in pending if _is_meant(each, wanted, may_be_prefix=len(wanted) >= _MIN_PREFIX)]
        field = "to"
    else:
        fits, field = list(pending), "reply_to"
    if len(fits) == 1:
        return fits[0]
    waiting = ", ".join(f"{each.id} ({each.agent})" for each in (fits or pending)[:8]) or "none"
    what = "Several requests fit" if fits else "No pending request fits"
    raise InvalidArgumentError(f"{what}: name one by its id. Waiting: {waiting}.", field=field)


def _is_meant(request: SupervisorRequest, wanted: str, *, may_be_prefix: bool) -> bool:
    is_prefix = may_be_prefix and (request.id.startswith(wanted) or request.run_id.startswith(wanted))
    return is_prefix or request.agent.casefold() == wanted


def read_reply(request: SupervisorRequest, message: str) -> SupervisorReply:
    """Return a reply as the child gets it: one to an interview is read as JSON too, bare or in a fence."""
    if request.reason is not Reason.INTERVIEW_REQUEST:
        return SupervisorReply(message=message)
    fenced = _FENCE.fullmatch(message)
    try:
        return SupervisorReply(message=message, structured=msgspec.json.decode(fenced[1] if fenced else message))
    except (msgspec.DecodeError, RecursionError) as error:
        return SupervisorReply(message=message, parse_error=str(error))
