"""Skills: folders with a `SKILL.md`, which a child reads when its task is what they are for.

This module finds them. What a skill says is the child's to read: here it is a name, a sentence, a path and a digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from pisub.agents import frontmatter
from pisub.agents.files import read_bounded
from pisub.agents.frontmatter import FrontmatterError, Scalar
from pisub.protocol.limits import MAX_SKILL_BYTES, MAX_SKILLS

#: Our own names: they are no skills that a child could be given.
RESERVED = frozenset({"pi-subagents", "pisub"})
#: The folders of a project, highest first.
PROJECT_FOLDERS = (".pisub/skills", ".pi/skills", ".claude/skills")


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """One skill. ``source`` is ``agent`` (its ``skillPath``), ``project`` or ``user``."""

    name: str
    path: str
    source: str
    description: str = ""
    sha256: str = ""


def find_skills(
    names: Sequence[str], *, root: Path, user_folder: Path, agent_paths: Sequence[str] = ()
) -> tuple[tuple[Skill, ...], tuple[str, ...]]:
    """Return the skills of these names, and the names that nothing has.

    Args:
        names: As asked for; each once.
        root: The project's.
        user_folder: The user's `skills`.
        agent_paths: Folders of skills, or a skill's own folder or file, that the agent names. They win.
    """
    if not names:
        return (), ()
    places = [("agent", Path(each)) for each in agent_paths]
    places += [("project", root / each) for each in PROJECT_FOLDERS]
    places.append(("user", user_folder))
    known: dict[str, Skill] = {}
    for source, place in places:
        for skill in _skills_in(source, place):
            known.setdefault(skill.name, skill)
    found = tuple(known[name] for name in names if name in known)
    return found, tuple(name for name in names if name not in known)


def _skills_in(source: str, place: Path) -> Iterator[Skill]:
    own = place if place.name == "SKILL.md" else place / "SKILL.md"
    if own.is_file():
        yield from _read(source, own)
        return
    try:
        folders = sorted(place.iterdir())[:MAX_SKILLS]
    except OSError:
        return
    for folder in folders:
        yield from _read(source, folder / "SKILL.md")


def _read(source: str, path: Path) -> Iterator[Skill]:
    """Yield the skill of a file; one that cannot be read, or is none, is not there."""
    try:
        raw = read_bounded(path, MAX_SKILL_BYTES)
        text = raw.decode("utf-8")
        str(path).encode("utf-8")
        parts = frontmatter.split(text)
        head = {} if parts is None else frontmatter.parse(parts[0]).entries
    except (OSError, UnicodeError, FrontmatterError):
        return
    name, description = head.get("name"), head.get("description")
    yield Skill(
        name=name.text.strip() if isinstance(name, Scalar) and name.text.strip() else path.parent.name,
        path=str(path),
        source=source,
        description=" ".join(description.text.split()) if isinstance(description, Scalar) else "",
        sha256=hashlib.sha256(raw).hexdigest(),
    )
