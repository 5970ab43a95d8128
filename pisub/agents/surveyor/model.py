"""What the surveyor knows of a tree: plain values, no reading and no rendering.

Paths are relative with `/`, as `os.fsdecode` gives them: a name that is not UTF-8 has surrogates until it is shown.
"""

from __future__ import annotations

import msgspec


class Note(msgspec.Struct, frozen=True):
    """A TODO or the like in a comment."""

    kind: str
    line: int
    text: str


class Definition(msgspec.Struct, frozen=True):
    """A class or function at the top of a file, or a method; ``summary`` is its docstring's first line."""

    kind: str
    name: str
    line: int
    summary: str = ""


class Import(msgspec.Struct, frozen=True):
    """One import: ``level`` counts a Python one's dots, ``names`` may be submodules, a lazy one is in a function."""

    module: str
    level: int = 0
    names: tuple[str, ...] = ()
    is_lazy: bool = False


class EntryPoint(msgspec.Struct, frozen=True):
    """A way to start something."""

    kind: str
    name: str
    target: str = ""


class SourceFacts(msgspec.Struct, frozen=True):
    """What a file's text says."""

    imports: tuple[Import, ...] = ()
    definitions: tuple[Definition, ...] = ()
    notes: tuple[Note, ...] = ()
    entry_points: tuple[EntryPoint, ...] = ()
    test_count: int = 0
    test_frameworks: tuple[str, ...] = ()
    #: Why its structure could not be read, if it could not.
    problem: str = ""


class SurveyedFile(msgspec.Struct, frozen=True):
    """One file. ``lines`` is None where it was not read as text, and ``why_unread`` says why."""

    path: str
    size_bytes: int
    language: str
    lines: int | None = None
    why_unread: str = ""
    is_generated: bool = False
    is_executable: bool = False
    facts: SourceFacts = SourceFacts()


class Listing(msgspec.Struct, frozen=True):
    """Which files there are. ``skipped`` counts left-out directories by name; ``problems`` are places with a reason."""

    how: str
    paths: tuple[str, ...]
    skipped: tuple[tuple[str, int], ...] = ()
    problems: tuple[tuple[str, str], ...] = ()
    is_capped: bool = False


class Commit(msgspec.Struct, frozen=True):
    """One commit, as git's log has it."""

    short_id: str
    date: str
    author: str
    subject: str


class GitFacts(msgspec.Struct, frozen=True):
    """What the history says. ``changed`` counts the commits of the last ``window`` that touched a file."""

    commits: tuple[Commit, ...]
    changed: tuple[tuple[str, int], ...] = ()
    window: int = 0


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a report is made of: equal surveys give equal reports."""

    name: str
    listing: Listing
    files: tuple[SurveyedFile, ...]
    git: GitFacts | None = None
    #: Files that were listed and are gone.
    vanished: tuple[str, ...] = ()


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What the human said. ``part`` is '' for the whole; None is no answer, with ``why_unanswered``."""

    part: str | None = None
    purpose: str | None = None
    why_unanswered: str = ""
