"""A project of a user's: a directory with agents, trusted or not, and the command line run in it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from pisub.config import Settings, caller_environment, load_settings

#: Agents that tests use, one function each. They are ordinary user code: only what a child has.
AGENTS = '''
import asyncio
import sys
import time

from pisub import Question


async def echo(child):
    return child.task


async def talk(child):
    child.log("first line")
    with child.tool("count", upto=3):
        pass
    child.write("notes/one.md", "# one\\n")
    return "talked"


async def fail(child):
    raise ValueError("the agent broke")


async def ask(child):
    answers = await child.ask([Question("Which?", options=["left", "right"]), Question("Why?")], why="to choose")
    return f"{answers.status}: {answers.values}"


async def sleep(child):
    child.log("asleep")
    await asyncio.sleep(600)


async def block(child):
    child.log("blocked")
    time.sleep(600)


async def crunch(child):
    child.log("crunching")
    return str(sum(range(10**14)))


async def hold(child):
    """Never let go of the interpreter: one C call for ever."""
    child.log("holding")
    await asyncio.sleep(0.2)
    return str(sum(range(10**14)))


async def release(child):
    """Go on when a file of the test's is there."""
    child.log("waiting")
    while not (child.cwd / "go").exists():
        await asyncio.sleep(0.01)
    return "released"


async def command(child):
    """Run the command line as a child would, with the arguments that the task names; {run_id} is its own."""
    arguments = child.task.replace("{run_id}", child.run_id).split()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pisub", *arguments, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, err = await process.communicate()
    return f"{process.returncode} {err.decode()}"
'''

NAMES = ("echo", "talk", "fail", "ask", "sleep", "block", "crunch", "hold", "release", "command")


class Outcome(msgspec.Struct, frozen=True):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as the one JSON object that it should be."""
        return msgspec.json.decode(self.out)

    @property
    def json_lines(self) -> list[Any]:
        """Standard output as one JSON object per line."""
        return [msgspec.json.decode(line) for line in self.out.splitlines()]


class Project:
    """A directory with agents, and commands that are run in it as a user would."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def settings(self) -> Settings:
        """The settings of the test's private directories."""
        return load_settings()

    def pisub(
        self,
        *arguments: str,
        stdin: str | bytes = b"",
        environ: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout_s: float = 60.0,
    ) -> Outcome:
        """Run ``python -m pisub`` in the project and return what it said. There is no terminal."""
        done = subprocess.run(
            [sys.executable, "-m", "pisub", *arguments],
            cwd=cwd or self.root,
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            env={**caller_environment(), **(environ or {})},
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
        return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start ``python -m pisub`` in the project; the caller ends it."""
        return subprocess.Popen(
            [sys.executable, "-m", "pisub", *arguments],
            cwd=self.root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def launch(self, agent: str, task: str = "a task", *options: str) -> str:
        """Start a detached run and return its id."""
        outcome = self.pisub("run", agent, task, "-d", *options)
        assert outcome.code == 0, outcome.err
        return outcome.out.strip()


def make_project(root: Path, *, is_trusted: bool = True) -> Project:
    """Make a project with the agents of ``AGENTS`` in ``root``."""
    from pisub.agents.trust import trust  # noqa: PLC0415  # only tests that need a project pay for it

    agents = root / ".pisub" / "agents"
    agents.mkdir(parents=True)
    (root / "agents_of_mine.py").write_text(AGENTS)
    for name in NAMES:
        (agents / f"{name}.md").write_text(
            textwrap.dedent(f"""\
                ---
                name: {name}
                description: The test agent {name}.
                runner:
                  type: python
                  target: agents_of_mine:{name}
                ---
                """)
        )
    if is_trusted:
        trust(load_settings(), root)
    return Project(root)
