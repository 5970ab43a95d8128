"""A trusted project whose agents take messages, keep a session, and ask: what steering and resuming are tried on."""

from __future__ import annotations

import textwrap
from pathlib import Path

from pisub.agents.trust import trust
from pisub.config import load_settings
from tests.support.project import Project

AGENTS = '''
import asyncio

from pisub import Question


async def listen(child):
    """Return what it is told, until it is told to end; remember all of it."""
    child.log("listening")
    heard = [*child.session.read()]
    if child.resume_message:
        heard.append(f"resumed: {child.resume_message}")
        child.session.append(heard[-1])
    async for message in child.messages():
        if message.text == "end":
            return " | ".join(heard)
        heard.append(message.text)
        child.session.append(message.text)


async def deaf(child):
    """Never look for messages; go on from the second life."""
    child.log("working")
    if child.resumed_from:
        return f"revived: {child.resume_message}"
    await asyncio.sleep(600)


async def choose(child):
    child.log("asking")
    answers = await child.ask([Question("Which?", options=["left", "right"]), Question("Why?")])
    return f"{answers.status}: {answers.values}"
'''
NAMES = ("listen", "deaf", "choose")


def make_steered_project(root: Path) -> Project:
    """Make the project, and a program beside its agents: ``script``."""
    agents = root / ".pisub" / "agents"
    agents.mkdir(parents=True)
    (root / "agents_that_listen.py").write_text(AGENTS)
    for name in NAMES:
        text = f"""\
            ---
            name: {name}
            description: The test agent {name}.
            runner:
              type: python
              target: agents_that_listen:{name}
            ---
            """
        (agents / f"{name}.md").write_text(textwrap.dedent(text))
    program = """\
        ---
        name: script
        description: A program that sleeps.
        runner:
          type: external-cli
          argv: ["sleep", "600"]
        ---
        """
    (agents / "script.md").write_text(textwrap.dedent(program))
    trust(load_settings(), root)
    return Project(root)
