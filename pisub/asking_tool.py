"""``ask_user_via_host`` for the loop of a language model: its definition, and the one function that carries a call out.

The arguments come from a model, so whatever is wrong with them is said to it in words, and nothing is raised for it.
What may be asked is ``pisub.asking``'s to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from pisub.child import Child
from pisub.errors import InvalidArgumentError
from pisub.protocol.checkpoint import Question
from pisub.protocol.limits import MAX_OPTION_CHARS, MAX_OPTIONS, MAX_QUESTION_CHARS, MAX_QUESTIONS

TOOL_NAME: Final = "ask_user_via_host"

_DESCRIPTION: Final = (
    "Ask the human a batch of questions and wait. Use it for a decision that is the human's, never for what you can "
    "find out. The status is ok only when every question has an answer. For every other status do not guess: stop, "
    "and return what you need to know as needs_input."
)


class _Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of a call."""

    questions: list[_Asked]
    why: str = ""


class _Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One question of a call."""

    text: str
    options: list[str] = []
    placeholder: str = ""


def tool_definition(child: Child) -> dict[str, Any] | None:
    """Return the tool's name, description and JSON Schema; None where this agent may not ask, so has no such tool."""
    if not child.can_ask:
        return None
    option = {"type": "string", "minLength": 1, "maxLength": MAX_OPTION_CHARS}
    question = {
        "type": "object",
        "properties": {
            "text": {"type": "string", "minLength": 1, "maxLength": MAX_QUESTION_CHARS},
            "options": {
                "type": "array",
                "description": "The choices; leave it out for a free text.",
                "items": option,
                "minItems": 2,
                "maxItems": MAX_OPTIONS,
                "uniqueItems": True,
            },
            "placeholder": {"type": "string", "description": "A hint in an empty field; never an answer."},
        },
        "required": ["text"],
        "additionalProperties": False,
    }
    return {
        "name": TOOL_NAME,
        "description": _DESCRIPTION,
        "input_schema": {
            "type": "object",
            "properties": {
                "questions": {"type": "array", "items": question, "minItems": 1, "maxItems": MAX_QUESTIONS},
                "why": {"type": "string", "maxLength": MAX_QUESTION_CHARS, "description": "What you need it for."},
            },
            "required": ["questions"],
            "additionalProperties": False,
        },
    }


async def call_tool(
    child: Child,
    arguments: Mapping[str, Any],
    *,
    timeout_s: float | UnsetType | None = UNSET,
    question_timeout_s: float | UnsetType | None = UNSET,
) -> dict[str, Any]:
    """Carry a call of the tool out. How long it may take is the program's to say, not the model's.

    Args:
        child: Asks.
        arguments: What the model gave.
        timeout_s: For the whole ask, as ``Child.ask``'s.
        question_timeout_s: For one dialog, likewise.

    Returns:
        ``status`` (one of the six, or ``invalid`` where the arguments are none), ``answers`` (the texts in order, null
        where there is none) and ``reason``. It is JSON-compatible.

    Raises:
        RefusedError: This agent may not ask, or has too many asks open.
    """
    try:
        call = msgspec.convert(dict(arguments), _Call)
        questions = [Question(each.text, tuple(each.options), each.placeholder) for each in call.questions]
        result = await child.ask(questions, why=call.why, timeout_s=timeout_s, question_timeout_s=question_timeout_s)
    except msgspec.ValidationError as error:
        return {"status": "invalid", "answers": [], "reason": str(error)}
    except InvalidArgumentError as error:
        return {"status": "invalid", "answers": [], "reason": f"{error.field}: {error.message}"}
    return {"status": str(result.status), "answers": list(result.values), "reason": result.reason}
