"""What an agent's function gets: its task, and the ways to report, to write files and to ask the human.

Owns nothing: it hands everything to the runner's shell and returns at once, but for ``ask``. It must not know the
record, the broker or the runner.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncGenerator, Generator, Sequence
from pathlib import Path
from typing import Any

from msgspec import UNSET, UnsetType

from pisub import arguments as checks
from pisub.answer_book import AnswerBook
from pisub.asking import check_questions
from pisub.clock import SystemClock
from pisub.contacting import Contact, contact
from pisub.engines.base import (
    ArtifactWritten,
    AskTimes,
    EngineContext,
    LogLine,
    Shell,
    ToolEnded,
    ToolStarted,
    UsageReported,
)
from pisub.engines.capture import TOOL_NAME as STRUCTURED_OUTPUT
from pisub.engines.capture import Capture
from pisub.engines.mailbox import Mailbox
from pisub.errors import InvalidArgumentError, RefusedError
from pisub.protocol.checkpoint import AskResult, AskStatus, Question
from pisub.protocol.limits import MAX_ARTIFACT_BYTES, MAX_OPEN_ASKS_PER_RUN, MIB
from pisub.record.layout import Layout
from pisub.runs.budgets import ToolMeter
from pisub.runs.steering import SteerMessage
from pisub.runs.supervision import Reason, SupervisorReply
from pisub.runs.usage import MAX_REPORTED_COST, MAX_REPORTED_TOKENS, Usage
from pisub.session_file import Session, SessionMessage
from pisub.utf8 import is_utf8, without_surrogates

_MAX_ARGUMENT_CHARS = 200
_MAX_ARGUMENTS = 16
_PRIVATE_FILE = 0o600
_PRIVATE_DIR = 0o700


class Child:
    """One agent's side of its run. Made by the engine; use it in the thread and loop that got it.

    Attributes:
        task: The prompt.
        cwd: The directory to work in.
        run_id: This run.
        session_id: The session that it belongs to.
        resumed_from: The run that this one goes on with; '' for a fresh one.
        resume_message: What was said with the resume; '' for a fresh run.
        tool_budget: How many tool calls it may attempt; None is any number.
        output_schema: What the structured result must fit; None where the run gives a text.
        session: What this run, and those that it goes on with, wrote down for the next.
    """

    def __init__(
        self,
        context: EngineContext,
        shell: Shell,
        *,
        mailbox: Mailbox | None = None,
        session: Session | None = None,
        capture: Capture | None = None,
        tools: ToolMeter | None = None,
    ) -> None:
        self.task = context.task
        self.cwd = Path(context.cwd)
        self.run_id = context.run_id
        self.session_id = context.session_id
        self.resumed_from = context.resumed_from
        self.resume_message = context.resume_message
        self.session = Session() if session is None else session
        self.output_schema = context.output_schema
        self.tool_budget = context.tool_budget
        self._context = context
        self._artifacts = Path(context.artifacts_dir)
        self._can_ask = context.can_ask
        self._shell = shell
        self._mailbox = Mailbox(shell) if mailbox is None else mailbox
        self._capture = Capture(context.output_schema) if capture is None else capture
        self._tools = ToolMeter(context.tool_budget, context.usage_budget) if tools is None else tools
        self._answers = AnswerBook(self.session)
        self._calls = itertools.count(1)
        self._open_asks = 0
        self._is_stopping = False

    @property
    def can_ask(self) -> bool:
        """Whether this agent may ask the human: armed, granted, and not taken away above it."""
        return self._can_ask

    @property
    def is_stopping(self) -> bool:
        """Whether the run was asked to end. For code that cannot be cancelled: look here between two pieces of work."""
        return self._is_stopping

    def note_stopping(self) -> None:
        """Said by the engine when the run is to end."""
        self._is_stopping = True

    async def ask(
        self,
        questions: Question | str | Sequence[Question | str],
        *,
        why: str = "",
        fresh: bool = False,
        timeout_s: float | UnsetType | None = UNSET,
        question_timeout_s: float | UnsetType | None = UNSET,
    ) -> AskResult:
        """Ask the human, and wait for what becomes of it.

        The run's clock stands still meanwhile. Cancelling the waiting task takes the questions back. What the
        environment does (no host, no answer, a closed dialog) is a status of the result, never an exception.

        In a resumed run a question that was answered before is not asked again: each answer of the earlier runs, and
        each that came with the resume, is given once to the same question, in order, without a host.

        Args:
            questions: One question or a batch, shown one after another without another asker in between.
            why: What the answers are needed for, in one sentence; shown with every dialog.
            fresh: Ask the human whatever was answered before.
            timeout_s: For the whole ask, in seconds from its first dialog; None is for ever. Left out it is what the
                settings say, five minutes.
            question_timeout_s: For one dialog; likewise, three minutes.

        Raises:
            InvalidArgumentError: A question breaks a bound.
            RefusedError: This agent may not ask, or has too many asks open.
        """
        batch = check_questions(questions)
        if not isinstance(why, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # an agent passes anything
            raise InvalidArgumentError(f"why must be a text, not {type(why).__name__}.", field="why")
        times = AskTimes(
            timeout_ms=checks.milliseconds(timeout_s, "timeout_s"),
            question_timeout_ms=checks.milliseconds(question_timeout_s, "question_timeout_s"),
        )
        if not self._can_ask:
            raise RefusedError("This agent may not ask the human: its definition does not grant it.")
        known = (None,) * len(batch) if fresh else self._answers.take(batch)
        left = tuple(question for question, answer in zip(batch, known, strict=True) if answer is None)
        if not left:
            return AskResult(status=AskStatus.OK, answers=known)
        asked = await self._ask_human(left, why, times)
        self._answers.note(left, asked)
        return self._answers.merge(known, asked)

    async def _ask_human(self, batch: tuple[Question, ...], why: str, times: AskTimes) -> AskResult:
        if self._open_asks >= MAX_OPEN_ASKS_PER_RUN:
            raise RefusedError(f"At most {MAX_OPEN_ASKS_PER_RUN} asks of a run can be open at once.")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[AskResult] = loop.create_future()

        def settle(result: AskResult) -> None:
            if not future.done():
                future.set_result(result)

        def hand_over(result: AskResult, /) -> None:
            with contextlib.suppress(RuntimeError):  # the agent's loop was closed meanwhile: nobody waits
                loop.call_soon_threadsafe(settle, result)

        self._open_asks += 1
        number = self._shell.ask(batch, without_surrogates(why), hand_over, times)
        try:
            return await future
        except asyncio.CancelledError:
            self._shell.cancel_ask(number)
            raise
        finally:
            self._open_asks -= 1

    async def contact_supervisor(
        self,
        reason: Reason | str,
        message: str = "",
        *,
        interview: dict[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> SupervisorReply:
        """Tell the session that started this run something, and wait for its reply where the reason wants one.

        The session itself replies, a program or a person; the human is asked by ``ask``. The run's clock goes on
        meanwhile. Cancelling the waiting task takes the request back.

        Args:
            reason: ``need_decision``, ``interview_request`` (both wait) or ``progress_update`` (returns at once).
            message: What is said; only an interview needs none.
            interview: What is wanted, as a JSON object; with ``interview_request`` alone.
            timeout_s: How long to wait; None is what the settings say, ten minutes.

        Raises:
            InvalidArgumentError: What is said breaks a rule. Nothing was written.
            WaitTimeoutError: No reply came in time (``supervisor_timeout``).
            RefusedError: The request was closed without a reply (``supervisor_cancelled``).
        """
        context = self._context
        wait_s = context.supervisor_timeout_ms / 1000 if timeout_s is None else checks.seconds(timeout_s, "timeout_s")
        who = Contact(run_id=context.run_id, session_id=context.session_id, agent=context.agent)
        # The record is known to a child by its files alone: <root>/runs/<run>/artifacts.
        layout = Layout(self._artifacts.parents[2])
        return await contact(layout, who, reason, message, interview, timeout_s=wait_s)

    async def next_message(self) -> SteerMessage:
        """Return the next message that somebody sent to this run, and wait for it.

        Between turns it also brings follow-ups, one at a time: who waits has nothing else to do. A sender is told
        *delivered* when this returns its message. Cancellation passes, and loses none.
        """
        return self._take(await self._mailbox.wait())

    async def messages(self) -> AsyncGenerator[SteerMessage]:
        """Yield messages as they come, for ever: leave the loop, or be cancelled with the run."""
        while True:
            yield await self.next_message()

    def take_messages(self) -> list[SteerMessage]:
        """Return the messages that are there, without waiting; also for an agent that is no coroutine."""
        return [self._take(message) for message in self._mailbox.take()]

    @contextlib.contextmanager
    def turn(self) -> Generator[None]:
        """Say that a piece of work goes on that follow-ups must not disturb. At each begin one of them is released.

        Only messages of mode ``steer`` come in the middle of a turn. Without turns, each look for messages is the
        boundary between two pieces of work.
        """
        self._mailbox.begin_turn()
        try:
            yield
        finally:
            self._mailbox.end_turn()

    def _take(self, message: SteerMessage) -> SteerMessage:
        with contextlib.suppress(OSError, RefusedError):  # a full disk keeps no message from the agent
            self.session.write(SessionMessage(kind="steer", text=without_surrogates(message.text)))
        return message

    def log(self, text: str) -> None:
        """Report a line of progress."""
        self._shell.report(LogLine(without_surrogates(str(text))))

    @contextlib.contextmanager
    def tool(self, name: str, /, **arguments: Any) -> Generator[None]:
        """Show a piece of work while it lasts, as the use of a tool. An exception in it is shown as an error.

        Args:
            name: What is used.
            **arguments: What it is used on; long values are cut.

        Raises:
            ToolBudgetError: The run's budget of calls is used up, and blocks this one. Nothing of it was done.
            UsageBudgetError: What its models may use is used up; likewise.
        """
        name = checks.name(name, "name")
        call_id = next(self._calls)
        self._shell.report(ToolStarted(call_id, name, _summary(arguments)))
        is_error = True
        try:
            if (said := self._tools.attempt(name, SystemClock().wall_ms())) is not None:
                self._shell.report(LogLine(said))
            yield
            is_error = False
        finally:
            self._shell.report(ToolEnded(call_id, name, is_error))
            if is_error:
                self._capture.note_tool_error(name)

    def structured_output(self, value: object) -> None:
        """Give the run's structured result: a JSON value that fits ``output_schema``. Once; then return.

        It is shown as a use of the tool ``structured_output``. A run with a schema that returns without a value has
        failed, and so has one whose tool fails after this; what the agent returns is never taken for the value.

        Args:
            value: None, truths, numbers, texts, lists, dicts; at most ``limits.MAX_STRUCTURED_BYTES`` as compact JSON.

        Raises:
            StructuredOutputError: It does not fit; ``problems`` says where, and another may be tried.
            RefusedError: The run has no schema (``no_schema``), or its result already (``already_captured``).
        """
        with self.tool(STRUCTURED_OUTPUT):
            self._capture.take(value)

    def report_usage(
        self,
        *,
        input: int = 0,  # noqa: A002  # the field's word in every model's answer
        output: int = 0,
        cache_read: int = 0,
        cache_write: int = 0,
        cost: float = 0.0,
        model: str = "",
    ) -> None:
        """Say what one answer of a model took. The run's status and result have the sums; ``pisub show`` prints them.

        Args:
            input: Tokens sent, without those from a cache.
            output: Tokens answered.
            cache_read: Tokens read from a cache.
            cache_write: Tokens written to one.
            cost: In US dollars.
            model: Which model it was.

        Raises:
            InvalidArgumentError: One of them is negative, or no number.
        """
        tokens = {"input": input, "output": output, "cache_read": cache_read, "cache_write": cache_write}
        for field, value in tokens.items():
            checks.whole_number(value, field, lowest=0, highest=MAX_REPORTED_TOKENS)
        cost = checks.amount(cost, "cost", highest=MAX_REPORTED_COST)
        model = checks.text(model, "model", max_chars=_MAX_ARGUMENT_CHARS)
        usage = Usage(**tokens, cost=cost, turns=1)
        self._tools.note_usage(usage)
        self._shell.report(UsageReported(usage, model))

    def write(self, path: str | os.PathLike[str], content: str | bytes) -> Path:
        """Write a file of the run and return where it lies. Replaces a file of that name, whole or not at all.

        Args:
            path: Relative to the run's ``artifacts`` directory.
            content: Text (as UTF-8) or bytes, at most ``limits.MAX_ARTIFACT_BYTES``.

        Raises:
            InvalidArgumentError: The path leads out of the directory, or the content is too large.
            OSError: It could not be written.
        """
        if not isinstance(content, str | bytes | bytearray | memoryview):  # pyright: ignore[reportUnnecessaryIsInstance]  # as above
            raise InvalidArgumentError(f"content must be text or bytes, not {type(content).__name__}.", field="content")
        if isinstance(content, str) and not is_utf8(content):
            raise InvalidArgumentError("The text holds half of a surrogate pair, which UTF-8 cannot.", field="content")
        data = content.encode() if isinstance(content, str) else bytes(content)
        if len(data) > MAX_ARTIFACT_BYTES:
            raise InvalidArgumentError(
                f"A file of a run has at most {MAX_ARTIFACT_BYTES // MIB} MiB: split it, or write it elsewhere.",
                field="content",
            )
        relative = checks.path(path, "path")
        parts = relative.parts
        if relative.is_absolute() or not parts or ".." in parts or "\0" in str(relative) or not is_utf8(str(relative)):
            raise InvalidArgumentError(f"{str(relative)!r} is not a path inside the run's files.", field="path")
        parent = self._artifacts
        for part in (None, *parts[:-1]):
            parent = parent if part is None else parent / part
            with contextlib.suppress(FileExistsError):
                parent.mkdir(mode=_PRIVATE_DIR)
                parent.chmod(_PRIVATE_DIR)  # an umask of the agent's takes bits that we need
            if parent.is_symlink():
                raise InvalidArgumentError(f"{str(relative)!r} leads through a symlink.", field="path")
        target = parent / parts[-1]
        _replace(target, data)
        self._shell.report(ArtifactWritten(str(relative), len(data)))
        return target


def _replace(target: Path, data: bytes) -> None:
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, _PRIVATE_FILE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, _PRIVATE_FILE)
            file.write(data)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _summary(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments that fit a journal line: numbers and truths as they are, all else as a short text."""
    shown: dict[str, Any] = {}
    for name, value in itertools.islice(arguments.items(), _MAX_ARGUMENTS):
        if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 2**53):
            shown[name] = value
            continue
        is_path = isinstance(value, os.PathLike)
        text = value if isinstance(value, str) else f"{value}" if is_path else repr(value)
        shown[name] = text if len(text) <= _MAX_ARGUMENT_CHARS else text[:_MAX_ARGUMENT_CHARS] + "…"
    return shown
