"""A project whose agents ask, and humans of several kinds, for tests of the host."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Sequence
from pathlib import Path

from pisub.agents.trust import trust
from pisub.config import load_settings
from pisub.hosting.dialogs import DialogContext

_AGENTS = '''
import asyncio

from pisub import Question


async def three(child):
    """Ask three questions that carry the task, and say what was answered."""
    questions = [Question(f"{child.task}/{number}") for number in (1, 2, 3)]
    result = await child.ask(questions, why="to test")
    return f"{result.status}:" + ",".join(str(value) for value in result.values)


async def one(child):
    result = await child.ask([Question(child.task, options=["left", "right"])])
    return f"{result.status}:{result[0]}"


async def quiet(child):
    return child.task


async def sleep(child):
    child.log("asleep")
    await asyncio.sleep(600)
'''


def make_asking_project(root: Path) -> Path:
    """Make a trusted project with the agents above, and return its root."""
    agents = root / ".pisub" / "agents"
    agents.mkdir(parents=True)
    (root / "asking_agents.py").write_text(_AGENTS)
    for name in ("three", "one", "quiet", "sleep"):
        text = f"""\
            ---
            name: {name}
            description: The test agent {name}.
            runner:
              type: python
              target: asking_agents:{name}
            ---
            """
        (agents / f"{name}.md").write_text(textwrap.dedent(text))
    trust(load_settings(), root)
    return root


class Watched:
    """A human that answers every question with its own text, and notices if two are open at once."""

    def __init__(self) -> None:
        self.open = 0
        self.most_open = 0
        self.seen: list[tuple[str, str, int]] = []

    async def select(self, title: str, options: Sequence[str], context: DialogContext) -> str | None:
        return await self._answer(options[0], title, context)

    async def input(self, title: str, placeholder: str, context: DialogContext) -> str | None:
        return await self._answer(f"answer to {title}", title, context)

    async def _answer(self, answer: str, title: str, context: DialogContext) -> str:
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        self.seen.append((context.run_id, title, context.number))
        await asyncio.sleep(0)  # a chance for a second dialog to open, if one could
        self.open -= 1
        return answer


class Absent:
    """A human that never answers: dialogs stay open until they are closed, with a reason that is kept."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.closed: list[str] = []

    async def select(self, title: str, options: Sequence[str], context: DialogContext) -> str | None:
        return await self._wait(title)

    async def input(self, title: str, placeholder: str, context: DialogContext) -> str | None:
        return await self._wait(title)

    async def _wait(self, title: str) -> str | None:
        self.opened.append(title)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            self.closed.append(str(error.args[0]) if error.args else "")
            raise
        return None
