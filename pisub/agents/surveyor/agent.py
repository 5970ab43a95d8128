"""The surveyor as an agent: scan, ask the human, write the report.

It uses only what every child has, stated here as a protocol, so that it can be run against any double of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeVar

from pisub.agents.surveyor import git, parts, scan
from pisub.agents.surveyor.markdown import visible
from pisub.agents.surveyor.model import GitFacts, Listing, Survey, SurveyedFile, Wishes
from pisub.agents.surveyor.report import render_report, summarise
from pisub.protocol.checkpoint import AskResult, Question

REPORT = "report.md"
PART_QUESTION = "Which part shall I look at closer?"
PURPOSE_QUESTION = "What is the report for?"
PURPOSE_HINT = "onboarding, a review, a security audit, a release …"
#: Files between two turns of the event loop: about 20 ms, so a stop is obeyed at once.
_STEP_FILES = 64
_PROGRESS_FILES = 2_000

_T = TypeVar("_T")
_R = TypeVar("_R")


class SurveyChild(Protocol):
    """What the surveyor needs of its child session."""

    @property
    def task(self) -> str:
        """The task's text."""
        ...

    @property
    def cwd(self) -> Path:
        """The directory to survey."""
        ...

    def ask(self, questions: Sequence[Question], *, why: str = "") -> Awaitable[AskResult]:
        """Ask the human a batch of questions."""
        ...

    def log(self, text: str) -> None:
        """Report progress for people."""
        ...

    def tool(self, name: str, /, **args: object) -> AbstractContextManager[object]:
        """Show a step as a tool call."""
        ...

    def write(self, path: str, content: str | bytes) -> Path:
        """Write an artifact of the run; returns where it lies."""
        ...


async def survey(child: SurveyChild) -> str:
    """Survey the child's directory and write the report; returns a summary with the report's path.

    Args:
        child: The child session. Its task's text is shown in the progress only: what to look at is asked.
    """
    child.log(f"Surveying {visible(str(child.cwd))}")
    found = await _scan(child)
    child.log(summarise(found))
    wishes = await _ask(child, found)
    with child.tool("write report", path=REPORT):
        text = render_report(found, wishes)
        path = child.write(REPORT, text)
    return f"{summarise(found)} The report is {path}"


async def _scan(child: SurveyChild) -> Survey:
    root = child.cwd
    listing, history = await _list(child, root)
    files: list[SurveyedFile] = []
    vanished: list[str] = []
    with child.tool("read files", count=len(listing.paths)):
        reading = scan.read_files(root, listing.paths)
        for number, each in enumerate(reading, 1):
            if isinstance(each, SurveyedFile):
                files.append(each)
            else:
                vanished.append(each)
            if number % _STEP_FILES == 0:
                await asyncio.sleep(0)
            if number % _PROGRESS_FILES == 0:
                child.log(f"Read {number:,} of {len(listing.paths):,} files")
    return Survey(name=root.name, listing=listing, files=tuple(files), git=history, vanished=tuple(vanished))


async def _list(child: SurveyChild, root: Path) -> tuple[Listing, GitFacts | None]:
    with child.tool("git ls-files", path="."):
        output = await git.list_files(root)
    if output:
        with child.tool("git log", path="."):
            history = await git.read_history(root)
        return scan.listing_from_git(output), history
    with child.tool("walk", path="."):
        return await _in_steps(scan.walk(root)), None


async def _in_steps(steps: Generator[_T, None, _R]) -> _R:
    """Drive a generator to its result, with a turn of the loop between its steps."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: _R = done.value
            return result
        await asyncio.sleep(0)


async def _ask(child: SurveyChild, found: Survey) -> Wishes:
    labels = parts.choices(found.files)
    purpose = Question(PURPOSE_QUESTION, placeholder=PURPOSE_HINT)
    has_choice = len(labels) > 1  # a choice of one is no question
    questions = [Question(PART_QUESTION, options=tuple(labels)), purpose] if has_choice else [purpose]
    result = await child.ask(questions, why="The survey is done; the report can be made for you.")
    values = [*result.values, *(None for _ in questions)]
    answer = values[0] if has_choice else None
    wanted = values[1] if has_choice else values[0]
    if not result.is_ok:
        child.log(f"Not everything was answered ({result.status}); the report says so")
    return Wishes(
        part=(None if answer is None else labels.get(answer)) if has_choice else "",
        purpose=wanted.strip() or None if wanted is not None else None,
        why_unanswered="" if result.is_ok else result.reason or str(result.status),
    )
