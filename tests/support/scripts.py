"""Agents that are shell scripts."""

from __future__ import annotations

import sys
import textwrap

from pisub.agents.trust import trust
from tests.support.project import Project


def add_script(project: Project, name: str, script: str, *, keys: str = "") -> None:
    """Add an agent that is a shell script; ``pisub`` in it is this tree's."""
    path = project.root / f"{name}.sh"
    path.write_text(f'pisub() {{ "{sys.executable}" -m pisub "$@"; }}\n{textwrap.dedent(script)}')
    front = f'name: {name}\ndescription: A script.\nrunner:\n  type: external-cli\n  argv: ["sh", "{path}"]\n{keys}'
    (project.root / ".pisub" / "agents" / f"{name}.md").write_text(f"---\n{front}---\n")
    trust(project.settings, project.root)
