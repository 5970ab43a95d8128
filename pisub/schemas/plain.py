"""What counts as plain JSON data: the rule for schemas, and for the values that they describe (delegation 1.4). Pure.

A value is copied while it is checked, so that nobody changes it afterwards. No method of the value's own is called.
"""

from __future__ import annotations

import math
from typing import Any, Final, Literal, cast

import msgspec

from pisub.protocol.limits import MAX_JSON_DEPTH, MAX_JSON_ENTRIES
from pisub.utf8 import is_utf8

#: Whole numbers that every peer's JSON reader takes as they are; JavaScript's are exact up to here.
_MAX_WHOLE: Final = 2**53 - 1


class PlainJsonError(ValueError):
    """A value is no plain JSON data. ``reason`` is ``invalid`` or ``too_large``; the text says what and where."""

    def __init__(self, text: str, *, reason: Literal["invalid", "too_large"] = "invalid") -> None:
        super().__init__(text)
        self.reason = reason


def plain_json(value: object, *, max_bytes: int) -> Any:
    """Return a deep copy of a value as plain JSON data: None, bool, int, float, str, list, dict with str keys.

    Tuples become lists, and -0.0 becomes 0. Nothing that is shared stays shared.

    Args:
        value: The value; its outermost container has depth 0, and at most ``MAX_JSON_DEPTH`` are allowed.
        max_bytes: Bound of its compact encoding.

    Raises:
        PlainJsonError: It is no such data, or too large.
    """
    copier = _Copier(max_bytes)
    found = copier.copy(value, 0, "$")
    size = len(msgspec.json.encode(found))
    if size > max_bytes:
        raise PlainJsonError(f"it has {size} bytes as JSON; at most {max_bytes} are allowed", reason="too_large")
    return found


class _Copier:
    """One copy. Counts entries, and bytes from below, so that a hostile value ends early."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries = 0
        self._bytes = 0

    def copy(self, value: object, depth: int, path: str) -> Any:
        if value is None or value is True or value is False:
            return value
        kind = type(value)
        if kind is str:
            return self._text(cast("str", value), path)
        if kind is int:
            if abs(cast("int", value)) > _MAX_WHOLE:
                raise PlainJsonError(f"{path}: the number has more than 53 bits: give it as a text")
            return value
        if kind is float:
            number = cast("float", value)
            if not math.isfinite(number):
                raise PlainJsonError(f"{path}: {number} is no JSON number")
            return number or 0
        if kind is dict:
            return self._object(cast("dict[object, object]", value), depth, path)
        if kind is list or kind is tuple:
            items = cast("list[object] | tuple[object, ...]", value)
            self._enter(len(items), depth)
            return [self.copy(each, depth + 1, f"{path}[{at}]") for at, each in enumerate(items)]
        raise PlainJsonError(
            f"{path}: {kind.__name__} is no JSON data: use null, truths, numbers, texts, lists, objects"
        )

    def _object(self, value: dict[object, object], depth: int, path: str) -> dict[str, Any]:
        self._enter(len(value), depth)
        found: dict[str, Any] = {}
        for key, each in value.items():
            if type(key) is not str:
                raise PlainJsonError(f"{path}: the key {key!a:.60} is no text")
            name = self._text(key, path)
            found[name] = self.copy(each, depth + 1, f"{path}.{name}")
        return found

    def _text(self, text: str, path: str) -> str:
        if not is_utf8(text):
            raise PlainJsonError(f"{path}: the text holds half of a surrogate pair, which UTF-8 cannot")
        self._count(len(text))
        return text

    def _enter(self, entries: int, depth: int) -> None:
        if depth > MAX_JSON_DEPTH:
            raise PlainJsonError(f"it is nested more than {MAX_JSON_DEPTH} levels deep, or holds itself")
        self._entries += entries
        if self._entries > MAX_JSON_ENTRIES:
            raise PlainJsonError(f"it has more than {MAX_JSON_ENTRIES} entries")
        self._count(entries)

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._max_bytes:
            raise PlainJsonError(f"it has more than {self._max_bytes} bytes as JSON", reason="too_large")
