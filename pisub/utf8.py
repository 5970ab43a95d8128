"""Text that a file can hold. JSON is UTF-8, and a Python text may hold half a character, which UTF-8 has no bytes for.

Such halves come from names and output that are no UTF-8, and from what an agent raises or returns.
"""

from __future__ import annotations

from typing import Any, cast


def without_surrogates(value: object) -> Any:
    """Return a text, or lists and dicts of texts, with every half of a character replaced by a question mark."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            pairs = cast("dict[object, object]", value).items()
            return {without_surrogates(key): without_surrogates(each) for key, each in pairs}
        case list() | tuple():
            return [without_surrogates(each) for each in cast("list[object]", value)]
        case _:
            return value


def is_utf8(text: str) -> bool:
    """Tell whether a text has bytes in UTF-8: no half of a character is in it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
