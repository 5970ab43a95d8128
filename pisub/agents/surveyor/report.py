"""The report: what stands at its head, and which section comes when. Pure: equal input gives an equal report."""

from __future__ import annotations

import re

from pisub.agents.surveyor import sections
from pisub.agents.surveyor.imports import build_graph
from pisub.agents.surveyor.markdown import code, counted, plain, size
from pisub.agents.surveyor.model import Survey, Wishes

MAX_PURPOSE_CHARS = 2_000
_TITLES = {
    "languages": "Languages",
    "sizes": "Sizes",
    "entry_points": "Entry points",
    "modules": "Biggest modules",
    "imports": "Imports",
    "notes": "Left to do",
    "tests": "Tests",
    "papers": "Papers and checks",
    "history": "History",
    "unread": "Not covered",
}
#: What a reader with this purpose wants first; the sections that are not named follow in the order of _TITLES.
_ORDERS: tuple[tuple[str, re.Pattern[str], tuple[str, ...]], ...] = (
    (
        "security",
        re.compile(r"secur|audit|vulnerab|threat|\brisk|sicherheit", re.IGNORECASE),
        ("entry_points", "unread", "imports", "papers", "notes", "tests"),
    ),
    (
        "review",
        re.compile(r"review|quality|refactor|clean|\bdebt|maintain", re.IGNORECASE),
        ("notes", "modules", "imports", "tests", "history"),
    ),
    ("testing", re.compile(r"\btest|coverage|\bqa\b", re.IGNORECASE), ("tests", "notes", "modules", "entry_points")),
    (
        "release",
        re.compile(r"release|publish|packag|deploy|\bship|licen[cs]e", re.IGNORECASE),
        ("papers", "entry_points", "tests", "notes"),
    ),
    (
        "onboarding",
        re.compile(r"onboard|newcomer|new (?:people|member|colleague|developer|contributor)|introduc|learn|understand"
                   r"|overview|show\b.*\baround", re.IGNORECASE),
        ("papers", "entry_points", "languages", "sizes", "modules", "imports", "tests"),
    ),
)  # fmt: skip


def render_report(survey: Survey, wishes: Wishes) -> str:
    """Return the report's text.

    Args:
        survey: What was found.
        wishes: What the human said; what was not said is named as such, never filled in.
    """
    graph = build_graph(survey.files)
    kind, order = section_order(wishes.purpose)
    lines = [f"# Survey of {plain(survey.name) or 'the directory'}", "", *_intro(survey, wishes, kind)]
    if wishes.part is not None and survey.files:
        names = {"": "the whole repository", "./": "the files at the top"}
        name = names.get(wishes.part) or code(wishes.part)
        lines += ["", f"## Closer: {name}", "", *sections.closer(survey, graph, wishes.part)]
    bodies = {
        "languages": lambda: sections.languages(survey),
        "sizes": lambda: sections.sizes(survey),
        "entry_points": lambda: sections.entry_points(survey),
        "modules": lambda: sections.modules(survey),
        "imports": lambda: sections.imports(survey, graph),
        "notes": lambda: sections.notes(survey),
        "tests": lambda: sections.tests(survey),
        "papers": lambda: sections.papers(survey),
        "history": lambda: sections.history(survey),
        "unread": lambda: sections.unread(survey),
    }
    for each in order if survey.files else ("unread",):
        lines += ["", f"## {_TITLES[each]}", "", *bodies[each]()]
    return "\n".join(lines) + "\n"


def section_order(purpose: str | None) -> tuple[str, tuple[str, ...]]:
    """Return the kind of purpose that was recognised ('' for none) and the sections in its order."""
    for kind, pattern, first in _ORDERS:
        if purpose and pattern.search(purpose):
            return kind, (*first, *(each for each in _TITLES if each not in first))
    return "", tuple(_TITLES)


def summarise(survey: Survey) -> str:
    """Return the survey in one sentence."""
    lines = sum(file.lines or 0 for file in survey.files)
    total = sum(file.size_bytes for file in survey.files)
    if not survey.files:
        return "No files were found."
    counts: dict[str, int] = {}
    for file in survey.files:
        counts[file.language] = counts.get(file.language, 0) + (file.lines or 0)
    top = sorted(counts, key=lambda name: (-counts[name], name))[:3]
    return f"{counted(len(survey.files), 'file')}, {counted(lines, 'line')}, {size(total)}; mostly {', '.join(top)}."


def _intro(survey: Survey, wishes: Wishes, kind: str) -> list[str]:
    lines = [plain(summarise(survey)) + f" Listed by {survey.listing.how}."]
    if survey.listing.is_capped:
        lines += [
            "",
            f"**The tree is bigger than one survey: it covers {len(survey.listing.paths):,} of its files.**",
        ]
    if wishes.purpose is not None:
        lines += ["", "What this report is for:", "", f"> {plain(wishes.purpose, MAX_PURPOSE_CHARS)}"]
        if kind:
            lines += ["", f"The sections are in an order for {kind}."]
    missing = [
        what
        for what, value in (("which part to look at closer", wishes.part), ("what the report is for", wishes.purpose))
        if value is None
    ]
    if missing:
        why = f" ({plain(wishes.why_unanswered)})" if wishes.why_unanswered else ""
        lines += ["", f"Not answered: {' and '.join(missing)}{why}. The report goes on without it."]
    return lines
