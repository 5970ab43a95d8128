"""The parts of a tree that a person can choose from: its top directories, or those below one that holds nearly all."""

from __future__ import annotations

from collections.abc import Iterable

from pisub.agents.surveyor.markdown import visible
from pisub.agents.surveyor.model import SurveyedFile

WHOLE = "whole repository"
TOP_FILES = "files at the top"
#: More choices than fit on a screen help nobody; the protocol would take 64.
MAX_PARTS = 24
_DOMINANT = 0.6


def choices(files: tuple[SurveyedFile, ...]) -> dict[str, str]:
    """Return what to offer: label to part, where a part is a path's beginning, '' the whole, './' the top's files."""
    labels = {WHOLE: ""}
    prefixes: list[str] = []
    base = ""
    while True:
        weights = _children(files, base)
        prefixes.extend(prefix for prefix in _ranked(weights) if prefix not in prefixes)
        total = sum(weights.values())
        top = max(weights, key=lambda prefix: (weights[prefix], prefix), default="")
        if not top or weights[top] < _DOMINANT * total or len(prefixes) >= MAX_PARTS:
            break
        base = top
    for prefix in prefixes[:MAX_PARTS]:
        labels.setdefault(visible(prefix), prefix)
    if len(labels) > 1 and any("/" not in file.path for file in files):
        labels.setdefault(TOP_FILES, "./")
    return labels


def in_part(path: str, part: str) -> bool:
    """Tell whether a file belongs to a part."""
    return "/" not in path if part == "./" else path.startswith(part)


def _children(files: Iterable[SurveyedFile], base: str) -> dict[str, int]:
    weights: dict[str, int] = {}
    for file in files:
        if file.path.startswith(base) and "/" in file.path[len(base) :]:
            prefix = base + file.path[len(base) :].partition("/")[0] + "/"
            # A file counts for one line at least, so that a directory of pictures is a part too.
            weights[prefix] = weights.get(prefix, 0) + (0 if file.is_generated else file.lines or 0) + 1
    return weights


def _ranked(weights: dict[str, int]) -> list[str]:
    return sorted(weights, key=lambda prefix: (-weights[prefix], prefix))
