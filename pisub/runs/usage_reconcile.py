"""What a child's session says of its usage, against what was added up while it ran (contract, delegation 1.10). Pure.

For engines whose child keeps a list of messages: those that came after the prompt are the truth, field by field, where
every one of them has the field; where one lacks it, the sum that was seen live stays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, cast

import msgspec

from pisub.runs.usage import Usage

#: Our fields, and how messages call them, in the order in which they are looked for.
_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "input": ("input", "inputTokens"),
    "output": ("output", "outputTokens"),
    "cache_read": ("cacheRead", "cacheReadTokens"),
    "cache_write": ("cacheWrite", "cacheWriteTokens"),
    "cost": ("cost",),
}
_NOTHING: Final[Mapping[str, object]] = {}


def reconcile_usage(live: Usage, messages: Sequence[object], baseline: object) -> Usage:
    """Return a usage of which every field that the messages know completely is theirs.

    Args:
        live: As it was added up.
        messages: The whole list: objects with ``role``, and of an assistant with ``usage`` and ``timestamp``.
        baseline: How many there were just before the prompt. What is older is never counted.
    """
    if not isinstance(baseline, int) or isinstance(baseline, bool) or not 0 <= baseline <= len(messages):
        return live
    counted = _counted(messages[baseline:])
    if not counted:
        return live
    sums: dict[str, int | float] = {"turns": len(counted)}
    for field, names in _NAMES.items():
        values = [_value(message, names) for message in counted]
        if None not in values:
            total = math.fsum(cast("list[float]", values))
            sums[field] = total if field == "cost" else int(total)
    return msgspec.structs.replace(live, **sums)


def _counted(messages: Sequence[object]) -> list[Mapping[str, object]]:
    """Return the assistant's messages, less those that are a copy of the one just before."""
    found: list[Mapping[str, object]] = []
    previous: object = None
    for each in messages:
        message: Mapping[str, object] = cast("Mapping[str, object]", each) if isinstance(each, Mapping) else _NOTHING
        is_assistant = message.get("role") == "assistant"
        stamp = _stamp(message) if is_assistant else None
        if is_assistant and (stamp is None or stamp != previous):
            found.append(message)
        previous = stamp
    return found


def _stamp(message: Mapping[str, object]) -> object:
    value = message.get("timestamp")
    if isinstance(value, str):
        return value or None
    return value if _is_number(value) else None


def _value(message: Mapping[str, object], names: Sequence[str]) -> float | None:
    usage = message.get("usage")
    if not isinstance(usage, Mapping):
        return None
    given = cast("Mapping[str, object]", usage)
    for name in names:
        value = given.get(name)
        if isinstance(value, Mapping):
            value = cast("Mapping[str, object]", value).get("total")
        if _is_number(value) and cast("float", value) >= 0:
            return cast("float", value)
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
