"""A session in the test's own process: agents are called as their runner would, and ask through a real host's queue.

What is real: the child, the checks, the queue with its order, times and grace, the desk with its dialogs, the rule that
the first outcome of a question wins. What is not there: processes, a broker, files of the record. So no test here shows
that a message arrives; those of pisub do.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from pisub.asking import check_questions
from pisub.child import Child
from pisub.clock import Clock, SystemClock
from pisub.engines.base import AskCallback, AskTimes, EngineContext, EngineEvent, LogLine
from pisub.engines.mailbox import Mailbox
from pisub.hosting import queue_events as ev
from pisub.hosting.desk import Desk
from pisub.hosting.dialogs import Dialogs
from pisub.ids import new_id
from pisub.protocol.checkpoint import AskResult, AskStatus, Question
from pisub.protocol.limits import DEFAULT_ASK_TIMEOUT_MS, DEFAULT_QUESTION_TIMEOUT_MS
from pisub.record.model import QuestionOutcome
from pisub.runs.steering import Mode, SteerMessage
from pisub.testing.fake_time import FakeTimeLoop

#: An agent's function, as in an agent's file.
Agent = Callable[[Child], Awaitable[str | None] | str | None]


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended.

    Attributes:
        run_id: Its id.
        text: What the agent returned.
        lines: What it logged.
        events: Everything that it reported, in order.
        files: What it wrote, by path.
    """

    run_id: str
    text: str
    lines: tuple[str, ...]
    events: tuple[EngineEvent, ...]
    files: dict[str, bytes]


class MemorySession:
    """The session. Made by ``session``.

    Attributes:
        session_id: Its id.
        results: What each ask of its runs ended with, in the order of their ends.
    """

    def __init__(self, session_id: str, dialogs: Dialogs | None, clock: Clock, directory: Path) -> None:
        self.session_id = session_id
        self.results: list[AskResult] = []
        self._clock = clock
        self._directory = directory
        self._outcomes: dict[tuple[str, int], QuestionOutcome] = {}
        self._problems: list[str] = []
        self._has_host = dialogs is not None
        self._desk: Desk | None = None
        if dialogs is not None:
            self._desk = Desk(
                dialogs,
                self._write,
                by="host:test",
                clock=clock,
                on_unclaimed=lambda _: None,
                report=lambda what, error: self._problems.append(f"{what} {error or ''}".strip()),
            )

    @property
    def problems(self) -> list[str]:
        """What the host would have reported: a dialog that failed, or did not close."""
        return list(self._problems)

    def _write(self, run_id: str, outcome: QuestionOutcome) -> QuestionOutcome:  # noqa: ARG002  # the record's shape
        return self._outcomes.setdefault((outcome.ask_id, outcome.number), outcome)

    async def run(
        self,
        agent: Agent,
        task: str = "",
        *,
        name: str = "agent",
        can_ask: bool = True,
        label: str = "",
        messages: Sequence[str] = (),
        ask_timeout_s: float | None = DEFAULT_ASK_TIMEOUT_MS / 1000,
        question_timeout_s: float | None = DEFAULT_QUESTION_TIMEOUT_MS / 1000,
    ) -> Ended:
        """Call an agent's function with a child, and return what came of it. Cancelling it takes its asks back.

        Args:
            agent: The function, plain or ``async``.
            task: What it is told.
            name: What dialogs call it.
            can_ask: Whether it is granted asking.
            label: A name for people, in dialogs.
            messages: What it finds when it looks for messages.
            ask_timeout_s: For a whole ask from its first dialog; None is no limit.
            question_timeout_s: For one dialog; None is no limit.

        Raises:
            Exception: Whatever the agent raises.
        """
        run_id = new_id(at_ms=self._clock.wall_ms())
        directory = self._directory / run_id
        directory.mkdir()
        template = ev.Ask(
            ask_id="",
            run_id=run_id,
            session_id=self.session_id,
            agent=name,
            questions=(),
            label=label,
            timeout_s=ask_timeout_s,
            question_timeout_s=question_timeout_s,
        )
        shell = _Shell(self._ask, self._withdraw, template)
        context = EngineContext(
            run_id=run_id,
            session_id=self.session_id,
            agent=name,
            task=task,
            cwd=str(directory),
            artifacts_dir=str(directory / "artifacts"),
            output_file=str(directory / "output-0.log"),
            result_file=str(directory / "result-0.txt"),
            can_ask=can_ask,
        )
        mailbox = Mailbox(shell)
        for text in messages:
            mailbox.offer(SteerMessage(id=new_id(), text=text, mode=Mode.STEER, sent_at=self._clock.wall_ms()))
        try:
            returned = agent(Child(context, shell, mailbox=mailbox))
            found = await returned if inspect.isawaitable(returned) else returned
        finally:
            await shell.end()
        artifacts = directory / "artifacts"
        files = {
            path.relative_to(artifacts).as_posix(): path.read_bytes()
            for path in sorted(artifacts.rglob("*"))
            if path.is_file()
        }
        return Ended(
            run_id=run_id,
            text=found or "",
            lines=tuple(each.text for each in shell.events if isinstance(each, LogLine)),
            events=tuple(shell.events),
            files=files,
        )

    async def ask(self, questions: Question | str | Sequence[Question | str], *, why: str = "") -> AskResult:
        """Ask as the session itself does, without a child."""
        batch = check_questions(questions)
        ask = ev.Ask(
            ask_id=new_id(at_ms=self._clock.wall_ms()),
            run_id=new_id(at_ms=self._clock.wall_ms()),
            session_id=self.session_id,
            agent="host",
            questions=batch,
            why=why,
        )
        return await self._ask(ask)

    async def _ask(self, ask: ev.Ask) -> AskResult:
        if self._desk is None:
            nothing = (None,) * len(ask.questions)
            result = AskResult(status=AskStatus.NO_HOST, answers=nothing, reason="There is no host.", ask_id=ask.ask_id)
        else:
            result = await self._desk.ask(msgspec.structs.replace(ask, asked_at=self._clock.wall_ms()))
        self.results.append(result)
        return result

    def _withdraw(self, ask_id: str) -> None:
        if self._desk is not None:
            self._desk.feed(ev.AskWithdrawn(ask_id=ask_id, reason="The asker took it back."))

    async def close(self) -> None:
        """Close the dialog that is open."""
        if self._desk is not None:
            await self._desk.stop("The session ends.")


class _Shell:
    """The runner's side of one child. Implements ``pisub.engines.base.Shell``."""

    def __init__(
        self, ask: Callable[[ev.Ask], Awaitable[AskResult]], withdraw: Callable[[str], None], template: ev.Ask
    ) -> None:
        self.events: list[EngineEvent] = []
        self._ask = ask
        self._withdraw = withdraw
        self._template = template
        self._open: dict[int, tuple[str, asyncio.Task[None]]] = {}
        self._last = 0

    def report(self, event: EngineEvent) -> None:
        self.events.append(event)

    def ask(self, questions: tuple[Question, ...], why: str, answer: AskCallback, times: AskTimes) -> int:
        self._last += 1
        template = self._template
        ask = msgspec.structs.replace(
            template,
            ask_id=new_id(),
            questions=questions,
            why=why,
            timeout_s=_seconds(times.timeout_ms, template.timeout_s),
            question_timeout_s=_seconds(times.question_timeout_ms, template.question_timeout_s),
        )
        task = asyncio.get_running_loop().create_task(self._carry(self._last, ask, answer))
        self._open[self._last] = (ask.ask_id, task)
        return self._last

    def cancel_ask(self, number: int) -> None:
        if number in self._open:
            self._withdraw(self._open[number][0])

    async def end(self) -> None:
        """Take back what is still open, and see it end."""
        tasks = [task for _, task in self._open.values()]
        for number in list(self._open):
            self.cancel_ask(number)
        if tasks:
            await asyncio.wait(tasks)

    async def _carry(self, number: int, ask: ev.Ask, answer: AskCallback) -> None:
        try:
            answer(await self._ask(ask))
        finally:
            del self._open[number]


@contextlib.asynccontextmanager
async def session(
    dialogs: Dialogs | None = None, *, session_id: str = "test", clock: Clock | None = None
) -> AsyncGenerator[MemorySession]:
    """Be in a session whose host asks by ``dialogs``. Its files are in a temporary directory, and gone at the end.

    Args:
        dialogs: Who answers, as a ``ScriptedHuman``; None is a session without a host.
        session_id: Its id, as dialogs are told.
        clock: The time; None is the loop's where that is a ``FakeTimeLoop``, else the machine's.
    """
    loop = asyncio.get_running_loop()
    if clock is None:
        clock = loop.clock if isinstance(loop, FakeTimeLoop) else SystemClock()
    with tempfile.TemporaryDirectory(prefix="pisub-test-") as directory:
        made = MemorySession(session_id, dialogs, clock, Path(directory))
        try:
            yield made
        finally:
            await made.close()


def _seconds(wanted_ms: int | msgspec.UnsetType | None, configured_s: float | None) -> float | None:
    if isinstance(wanted_ms, msgspec.UnsetType):
        return configured_s
    return None if wanted_ms is None else wanted_ms / 1000
