"""``contact_supervisor`` for the loop of a language model: its definition, and the function that carries a call out.

What may be said is ``pisub.runs.supervision``'s to say; what is wrong with a call is said to the model in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from pisub.child import Child
from pisub.errors import InvalidArgumentError, RefusedError
from pisub.runs.supervision import Reason

TOOL_NAME: Final = "contact_supervisor"


class _Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of a call."""

    reason: str
    message: str = ""
    interview: dict[str, Any] | None = None


def tool_definition() -> dict[str, Any]:
    """Return the tool's name, description and JSON Schema."""
    return {
        "name": TOOL_NAME,
        "description": (
            "Tell the session that started you something. need_decision and interview_request wait for its reply; "
            "progress_update does not. Do not wait for what you can decide or find out yourself."
        ),
        "input_schema": {
            "type": "object",
            "properties": {
                "reason": {"type": "string", "enum": [str(each) for each in Reason]},
                "message": {"type": "string", "description": "What you say; only an interview needs none."},
                "interview": {"type": "object", "description": "What you want to know, in a form of your own."},
            },
            "required": ["reason"],
            "additionalProperties": False,
        },
    }


async def call_tool(child: Child, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Carry a call of the tool out.

    Returns:
        ``{"delivered": true}`` for a progress update; ``reply``, and for an interview ``structuredReply`` or
        ``structuredReplyParseError``; or ``error`` where there is no reply, or the arguments are none.
    """
    try:
        call = msgspec.convert(dict(arguments), _Call)
        reply = await child.contact_supervisor(call.reason, call.message, interview=call.interview)
    except (msgspec.ValidationError, InvalidArgumentError, RefusedError) as error:  # a missing reply is a refusal too
        return {"error": error.message if isinstance(error, InvalidArgumentError | RefusedError) else str(error)}
    if call.reason == Reason.PROGRESS_UPDATE:
        return {"delivered": True}
    if call.reason != Reason.INTERVIEW_REQUEST:
        return {"reply": reply.message}
    read = (
        {"structuredReplyParseError": reply.parse_error} if reply.parse_error else {"structuredReply": reply.structured}
    )
    return {"reply": reply.message, **read}
