"""Text from children, made safe to show: nothing that a terminal would obey, or that hides what is really written."""

from __future__ import annotations

import unicodedata
from typing import Final

#: Control pictures stand for C0 controls: U+2400 is the picture of U+0000.
_PICTURES: Final = 0x2400
_DELETE_PICTURE: Final = "\u2421"
#: Other, format (bidi overrides, zero-width, tags), surrogate, private use, line and paragraph separator.
_ESCAPED: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def visible(text: str, *, is_multiline: bool = True, max_chars: int | None = None) -> str:
    r"""Return ``text`` with every control, bidi and invisible character written out.

    Args:
        text: Anything a child sent.
        is_multiline: Whether line feeds stay; otherwise they are shown as a picture. ``\r\n`` counts as one.
        max_chars: Cut to this many characters, the last one an ellipsis.
    """
    flat = text.replace("\r\n", "\n").replace("\t", "    ")
    if max_chars is not None and len(flat) > max_chars:
        flat = flat[: max_chars - 1] + "…"
    if flat.isascii() and flat.isprintable():
        return flat
    return "".join(_shown(character, is_multiline=is_multiline) for character in flat)


def _shown(character: str, *, is_multiline: bool) -> str:
    code = ord(character)
    if character == "\n" and is_multiline:
        return character
    if code < 0x20:
        return chr(_PICTURES + code)
    if code == 0x7F:
        return _DELETE_PICTURE
    return f"<U+{code:04X}>" if unicodedata.category(character) in _ESCAPED else character


def short_time(seconds: float) -> str:
    """Write a duration for a countdown: ``2:05``, ``0:09``."""
    whole = max(0, int(seconds))
    return f"{whole // 60}:{whole % 60:02d}"
