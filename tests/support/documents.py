"""Reading examples out of the documents, so that tests run what people will copy."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(msgspec.Struct, frozen=True):
    """One fenced block of a document."""

    document: str
    language: str
    text: str


def documents() -> list[Path]:
    """Every page that a user reads."""
    return sorted(
        [
            *ROOT.glob("*.md"),
            *(ROOT / "docs").rglob("*.md"),
            *(ROOT / "benchmarks").glob("*.md"),
            *(ROOT / "examples").glob("*.md"),
        ]
    )


def blocks(document: Path, language: str | None = None) -> list[Block]:
    """The fenced blocks of a document, in order."""
    name = document.relative_to(ROOT).as_posix()
    found = [Block(name, *match) for match in _BLOCK.findall(document.read_text(encoding="utf-8"))]
    return [block for block in found if language is None or block.language == language]


def commands(document: Path) -> list[list[str]]:
    """Every command that a document shows behind a prompt, as words; comments are not part of it."""
    lines = [line[2:] for block in blocks(document, "console") for line in block.text.splitlines() if line[:2] == "$ "]
    return [shlex.split(line, comments=True) for line in lines]
