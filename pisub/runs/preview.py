"""The beginning of a text, for a list: one line, without what looks like a secret."""

from __future__ import annotations

import re
from typing import Final

_HIDDEN: Final = "[redacted]"
_NAMED: Final = re.compile(
    r"(?i)\b([\w-]*(?:api[_-]?key|token|passw(?:or)?d|secret|authorization|credential)[\w-]*)(\s*[:=]\s*)(?:bearer\s+)?\S+"
)
_BARE: Final = re.compile(
    r"(?i:\bbearer)\s+\S+|\bsk-[\w-]{16,}|\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bxox[abprs]-[\w-]{10,}|\bAKIA[0-9A-Z]{12,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*"
)


def preview(text: str, *, width: int) -> str:
    """Return the beginning of a text as one line of at most ``width`` characters, secrets redacted."""
    line = " ".join(text[: width * 8].split())
    line = _NAMED.sub(rf"\1\2{_HIDDEN}", line)
    line = _BARE.sub(_HIDDEN, line)
    return line if len(line) <= width else line[: width - 1] + "…"
