"""What a program passes to the library, checked before anything is done with it.

Each check takes the value as the caller gave it, whatever it is, and the name of the argument. It returns the value, or
raises ``InvalidArgumentError`` with that name in ``field``; nothing was touched then.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from msgspec import UNSET, UnsetType

from pisub.errors import InvalidArgumentError
from pisub.protocol.limits import MAX_DURATION_MS
from pisub.utf8 import is_utf8

#: Larger numbers are not quoted, and of the largest Python makes no text at all.
_SHOWN_BELOW: Final = 10**20


def text(value: object, field: str, *, max_chars: int | None = None) -> str:
    """Return a text that a file and a message can hold."""
    if not isinstance(value, str):
        raise _wrong(field, "a text", value)
    if not is_utf8(value):
        raise InvalidArgumentError(
            f"{field} holds half of a surrogate pair: that is not valid UTF-8 text.", field=field
        )
    if max_chars is not None and len(value) > max_chars:
        raise InvalidArgumentError(
            f"{field} has {len(value)} characters; at most {max_chars} are allowed.", field=field
        )
    return value


def name(value: object, field: str) -> str:
    """Return a text that is not empty."""
    found = text(value, field)
    if not found.strip():
        raise InvalidArgumentError(f"{field} is empty.", field=field)
    return found


def whole_number(value: object, field: str, *, lowest: int, highest: int) -> int:
    """Return a whole number within bounds. A truth value is none, although Python counts with it."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(field, "a whole number", value)
    if not lowest <= value <= highest:
        shown = value if abs(value) < _SHOWN_BELOW else "a number of very many digits"
        raise InvalidArgumentError(f"{field} is {shown}: it must be {lowest} to {highest}.", field=field)
    return value


def seconds(value: object, field: str) -> float:
    """Return a duration in seconds: zero, or more, and an end."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _wrong(field, "a number of seconds", value)
    if not value >= 0 or not math.isfinite(value):
        raise InvalidArgumentError(f"{field} is {value}: it must be 0 or more, or None for no limit.", field=field)
    return value


def amount(value: object, field: str, *, highest: float) -> float:
    """Return a number from 0 to a bound."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _wrong(field, "a number", value)
    if not 0 <= value <= highest:
        raise InvalidArgumentError(f"{field} must be 0 to {highest:g}.", field=field)
    return float(value)


def milliseconds(value: float | UnsetType | None, field: str) -> int | UnsetType | None:
    """Return a time of an ask as the record has it. One of no time at all would ask nobody."""
    if value is None or value is UNSET:
        return value
    found = amount(value, field, highest=MAX_DURATION_MS / 1000)
    if found == 0:
        raise InvalidArgumentError(f"{field} is 0: give some time, or None for no limit.", field=field)
    return max(1, round(found * 1000))


def truth(value: object, field: str) -> bool:
    """Return True or False."""
    if not isinstance(value, bool):
        raise _wrong(field, "True or False", value)
    return value


def path(value: object, field: str) -> Path:
    """Return the path that a text or a path-like object names."""
    if not isinstance(value, str | os.PathLike):
        raise _wrong(field, "a path", value)
    named = cast("object", os.fspath(value))  # pyright: ignore[reportUnknownArgumentType]  # it is looked at next
    if not isinstance(named, str):
        raise _wrong(field, "a path as text", named)
    if not named or "\0" in named:
        raise InvalidArgumentError(f"{field} is {named[:80]!a}, which is no path.", field=field)
    return Path(named)


def texts(value: object, field: str) -> Mapping[str, str]:
    """Return a mapping of texts to texts, whatever characters they hold."""
    if not isinstance(value, Mapping):
        raise _wrong(field, "a mapping of texts to texts", value)
    for key, each in cast("Mapping[object, object]", value).items():
        if not isinstance(key, str) or not isinstance(each, str):
            raise InvalidArgumentError(f"{field}: {key!a:.60} and its value must both be texts.", field=field)
    return cast("Mapping[str, str]", value)


def instance(value: object, kind: type[Any], field: str) -> None:
    """Pass where a value is of a class of ours."""
    if not isinstance(value, kind):
        raise _wrong(field, f"a {kind.__name__}", value)


def _wrong(field: str, wanted: str, value: object) -> InvalidArgumentError:
    return InvalidArgumentError(f"{field} must be {wanted}, not {type(value).__name__}.", field=field)
