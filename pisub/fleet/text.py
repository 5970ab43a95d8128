r"""One line that is safe to show anywhere: no escape sequence, no control, no half character, bounded.

Lengths are UTF-16 units, so that a client in JavaScript counts the same. See contract, runs 1.6.
"""

from __future__ import annotations

import re
from typing import Final

#: So much of a text is looked at, in UTF-16 units: what comes after it is never shown.
MAX_RAW_UNITS: Final = 4_096

_ST: Final = r"(?:\x1b\\|\x9c|\Z)"
#: Escape sequences, in 7 and 8 bits. One that does not end takes the rest with it.
_ESCAPES: Final = re.compile(
    rf"(?:\x1b\]|\x9d)(?s:.*?)(?:\x07|{_ST})"  # OSC
    rf"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])(?s:.*?){_ST}"  # DCS, SOS, PM, APC
    r"|(?:\x1b\[|\x9b)[^@-~]*(?:[@-~]|\Z)"  # CSI
    r"|\x1b[ -/]*[0-~]"  # two characters, or a few
)
#: Controls, halves of pairs, and what JavaScript's trim takes for white space. U+200B is none.
_GAPS: Final = re.compile(r"[\x00-\x20\x7f-\xa0\ud800-\udfff\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]+")


def clean_line(text: str, max_units: int) -> str:
    """Return a text as one clean line; '' where nothing of it is to be seen.

    Args:
        text: Anything, from anybody.
        max_units: At most this many UTF-16 units; a pair is never cut in two.
    """
    raw = cut_units(text, MAX_RAW_UNITS)
    line = _GAPS.sub(" ", _ESCAPES.sub(" ", _joined(raw))).strip(" ")
    return cut_units(line, max_units).rstrip(" ")


def units(text: str) -> int:
    """Return the length of a text in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def cut_units(text: str, max_units: int) -> str:
    """Return the longest beginning of a text within so many UTF-16 units that cuts no pair in two."""
    if 2 * len(text) <= max_units or (text.isascii() and len(text) <= max_units):
        return text
    head = text[:max_units]  # a character has one unit or two
    data = head.encode("utf-16-le", "surrogatepass")[: 2 * max_units]
    if len(data) >= 2 and data[-1] & 0xFC == 0xD8:
        data = data[:-2]
    return data.decode("utf-16-le", "surrogatepass")


def _joined(text: str) -> str:
    """Return a text in which two halves beside each other are the one character that they are in UTF-16."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
