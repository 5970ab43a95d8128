"""What drives a child session, as the runner sees it: a start, a stream of events, a stop.

An engine runs in the process's main thread and owns nothing else. It must not know the record, the broker or the
state machine: it reports, and it obeys ``cancel``.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import msgspec

from pisub.protocol.checkpoint import AskResult, Question
from pisub.protocol.limits import DEFAULT_SUPERVISOR_TIMEOUT_MS, MAX_OUTPUT_BYTES
from pisub.runs.budgets import BudgetState, ToolBudget
from pisub.runs.steering import AckState, SteerMessage
from pisub.runs.usage import Usage
from pisub.runs.usage_budget import UsageBudget


class EngineEvent(msgspec.Struct, frozen=True, tag=True):
    """Base of what an engine reports."""


class LogLine(EngineEvent, frozen=True):
    """A line of progress for people."""

    text: str


class ToolStarted(EngineEvent, frozen=True):
    """A tool call began. ``arguments`` is a short JSON-compatible summary."""

    call_id: int
    name: str
    arguments: dict[str, Any] = {}


class ToolEnded(EngineEvent, frozen=True):
    """A tool call ended."""

    call_id: int
    name: str
    is_error: bool = False


class UsageReported(EngineEvent, frozen=True):
    """A model answered: what that took, and which it was, or ''."""

    usage: Usage
    model: str = ""


class OutputBytes(EngineEvent, frozen=True):
    """Raw output of a child program. ``stream`` is ``stdout`` or ``stderr``."""

    stream: str
    data: bytes


class ChildProcessStarted(EngineEvent, frozen=True):
    """A program was started in a process group of its own; a stop must end it."""

    pid: int


class ArtifactWritten(EngineEvent, frozen=True):
    """A file of the run was written. ``path`` is relative to the run's artifacts directory."""

    path: str
    size_bytes: int


class SteeringKnown(EngineEvent, frozen=True):
    """It is known now whether the child reads messages."""

    is_supported: bool


class Steered(EngineEvent, frozen=True):
    """What became of a message that ``Engine.steer`` was given."""

    request_id: str
    state: AckState
    text: str


class Settled(EngineEvent, frozen=True):
    """The child ended by itself; nothing follows.

    Attributes:
        text: Its result; '' where there is none.
        error: One sentence where it failed, else None.
        reason: Machine-readable cause with ``error``: ``agent-error``, ``import-error``, ``exit-code``, ``signal``.
        exit_code: Of a child program.
        was_cancelled: It ended because of ``cancel``.
        text_file: Path of a file with the whole result where ``text`` is only its beginning; '' where it is all.
        structured: The value that was captured for the run's schema; unset where there is none. None is a value.
        tool_budget_state: How the child stood with its budget of tool calls; None without one.
        text_bytes: Size of the whole result where ``text_file`` is set, and ``text_sha256`` its digest.
    """

    text: str = ""
    error: str | None = None
    reason: str | None = None
    exit_code: int | None = None
    was_cancelled: bool = False
    text_file: str = ""
    text_bytes: int = 0
    text_sha256: str = ""
    structured: Any = msgspec.UNSET
    tool_budget_state: BudgetState | None = None


class AskTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long an ask may take, in milliseconds; UNSET is what the run's settings say, None is for ever.

    Attributes:
        timeout_ms: The whole ask, from its first dialog.
        question_timeout_ms: One dialog.
    """

    timeout_ms: int | msgspec.UnsetType | None = msgspec.UNSET
    question_timeout_ms: int | msgspec.UnsetType | None = msgspec.UNSET


AS_CONFIGURED: Final = AskTimes()


class EngineContext(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine is told about its run. Values and paths; nothing here opens anything.

    Attributes:
        cwd: Where the child works; the process is already there.
        artifacts_dir: Where the child's files go; made when the first one is written.
        output_file: Raw output of a child program, and ``result_file`` its whole result where that is large.
        sys_path: Import directories of the process that launched the run, after our own.
        session_file: The child's session; '' where the engine keeps none.
        resumed_from: The run that this one goes on with; '' for a fresh one.
        resume_message: What the child was told with the resume.
        usage_budget: What the child's models may use; None is any amount.
        tool_budget: How many tool calls the child may attempt; None is any number.
        output_schema: What the structured result must fit; None where a text is wanted.
        max_output_bytes: Bound of ``output_file`` and of ``result_file``, each.
    """

    run_id: str
    session_id: str
    agent: str
    task: str
    cwd: str
    artifacts_dir: str
    output_file: str
    result_file: str
    system_prompt: str = ""
    depth: int = 0
    can_ask: bool = True
    supervisor_timeout_ms: int = DEFAULT_SUPERVISOR_TIMEOUT_MS
    sys_path: tuple[str, ...] = ()
    max_output_bytes: int = MAX_OUTPUT_BYTES
    session_file: str = ""
    resumed_from: str = ""
    resume_message: str = ""
    output_schema: dict[str, Any] | None = None
    tool_budget: ToolBudget | None = None
    usage_budget: UsageBudget | None = None


class Shell(Protocol):
    """The runner's side, as the engine's thread may use it. Every method is thread-safe and returns at once."""

    def report(self, event: EngineEvent) -> None:
        """Hand an event to the runner. Never blocks; may be called from any thread."""
        ...

    def ask(self, questions: tuple[Question, ...], why: str, answer: AskCallback, times: AskTimes) -> int:
        """Ask the human; ``answer`` is called exactly once. Returns a number for ``cancel_ask``."""
        ...

    def cancel_ask(self, number: int) -> None:
        """Take an ask back; its callback gets status cancelled."""
        ...


class AskCallback(Protocol):
    """Receives the one result of an ask."""

    def __call__(self, result: AskResult, /) -> None:
        """Take the result. Called from the shell's thread: hand it over, do not work here."""
        ...


class Engine(Protocol):
    """One way to run a child session."""

    def run(self) -> Settled:
        """Drive the child in the calling (main) thread until it ends. Never raises for a failure of the child."""
        ...

    def cancel(self) -> None:
        """Ask the child to end now: thread-safe, idempotent, at once. ``run`` returns if the child obeys."""
        ...

    def steer(self, message: SteerMessage) -> None:
        """Hand the child a message: thread-safe, at once. What becomes of it is reported as ``Steered``."""
        ...

    def close_steering(self) -> None:
        """Take no more messages, and report those that the child did not take as failed: thread-safe, idempotent."""
        ...
