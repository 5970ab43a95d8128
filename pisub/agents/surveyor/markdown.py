"""Markdown that cannot be broken by what is put into it: file names, comments, commit subjects, a person's answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MAX_CELL_CHARS = 200
_SPECIAL = str.maketrans({char: f"\\{char}" for char in "\\`*_{}[]<>#|~&!"})


def visible(text: str, limit: int = MAX_CELL_CHARS) -> str:
    r"""Return a text on one line of printable characters: others become `\xNN` or `\uNNNN`, a backslash two.

    No two texts within ``limit`` give the same one; a longer one is cut, with an ellipsis.
    """
    return _cut(_printable(text[: limit + 1].replace("\\", "\\\\")), limit)


def _printable(text: str) -> str:
    out: list[str] = []
    for char in text:
        if char.isprintable():
            out.append(char)
        elif "\udc80" <= char <= "\udcff":
            out.append(f"\\x{ord(char) - 0xDC00:02x}")  # a byte that was not UTF-8
        else:
            out.append(char.encode("unicode_escape", "surrogatepass").decode("ascii", "replace"))
    return "".join(out)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def plain(text: str, limit: int = MAX_CELL_CHARS) -> str:
    """Return a text as words: nothing in it is markup."""
    return _cut(_printable(text[: limit + 1]), limit).translate(_SPECIAL)


def code(text: str, limit: int = MAX_CELL_CHARS) -> str:
    """Return a text as a code span that also holds inside a table."""
    shown = visible(text, limit).replace("|", "\\x7c").replace("`", "\\x60")
    if not shown.strip():
        shown = shown.replace(" ", "\\x20")
    return f"`{shown}`" if shown else "(empty)"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table; columns whose head begins with `#` hold numbers and stand right."""
    lines = [
        "| " + " | ".join(head.removeprefix("#") for head in heads) + " |",
        "|" + "|".join(" ---: " if head.startswith("#") else " --- " for head in heads) + "|",
    ]
    lines.extend("| " + " | ".join(row) + " |" for row in rows)
    return lines


def size(count: int) -> str:
    """Return a number of bytes for people: `812 B`, `3.4 KiB`."""
    if count < 1024:
        return f"{count} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} TiB"


def counted(count: int, noun: str) -> str:
    """Return `1 file`, `2,000 files`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
