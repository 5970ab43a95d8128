"""The files of a run and of a session, as values. Field names are the contract's, letter for letter, in camelCase."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from pisub.process import ProcessIdentity
from pisub.protocol.base import Part, Record
from pisub.protocol.checkpoint import Answer, AskResult, Question
from pisub.protocol.runs import RunState
from pisub.protocol.version import LIFECYCLE_ARTIFACT_VERSION, record_version
from pisub.runs.budgets import BudgetState, ToolBudget
from pisub.runs.ceilings import CapabilityAudit, CapabilityCeiling
from pisub.runs.spec import ResolvedExtensions
from pisub.runs.usage import Tokens, Usage
from pisub.runs.usage_budget import UsageBudgetState


class LaunchNote(Record, frozen=True, kw_only=True):
    """``launched.json``: create-once, by who launched the runner. From then on this process counts, not that one."""

    run_id: str
    process: ProcessIdentity


class Started(Record, frozen=True, kw_only=True):
    """``started.json``: create-once, the one start of this run."""

    run_id: str
    process: ProcessIdentity
    started_at: int


class Step(Part, frozen=True, kw_only=True):
    """One child session of a run. A plain run has exactly one."""

    agent: str
    status: str  # pending | running | complete | failed | paused | stopped
    index: int = 0
    label: str = ""
    started_at: int | None = None
    ended_at: int | None = None
    duration_ms: int | None = None
    exit_code: int | None = None
    error: str | None = None
    #: As far as the child reports it.
    tokens: Tokens | None = None
    model: str | None = None
    capability_ceiling: CapabilityCeiling | None = None
    capability_audit: CapabilityAudit | None = None


class FanoutBudget(Part, frozen=True, kw_only=True):
    """How many runs may ever be started below the first run of a tree; ``tree/`` there has one name for each."""

    root_run_id: str
    limit: int


class SteeringEntry(Part, frozen=True, kw_only=True):
    """One message in a status. ``state`` is routed, queued, delivered or failed."""

    id: str
    ts: int
    mode: str
    state: str
    source: str = ""
    #: The beginning of the message, secrets redacted.
    preview: str = ""
    reason: str | None = None


class SteeringLedger(Part, frozen=True, kw_only=True):
    """``steering`` of a status: totals that only grow (each queued message counts once more when it is delivered)."""

    total: int = 0
    delivered: int = 0
    queued: int = 0
    failed: int = 0
    recent: tuple[SteeringEntry, ...] = ()


class RunStatus(Record, frozen=True, kw_only=True):
    """``status.json``: written by the runner alone (after its death, by who holds ``run.lock``). Begins as running."""

    record_version: int = msgspec.field(default_factory=record_version)
    lifecycle_artifact_version: int = LIFECYCLE_ARTIFACT_VERSION
    run_id: str
    session_id: str
    mode: str = "single"
    #: Whether another run started it.
    is_nested: bool = False
    run_fanout_budget: FanoutBudget | None = None
    state: RunState
    pid: int
    process: ProcessIdentity
    cwd: str
    started_at: int
    last_update: int
    ended_at: int | None = None
    error: str | None = None
    #: Machine-readable cause where state is failed or stopped: ``agent-error``, ``timeout``, ``runner-died``, ...
    reason: str | None = None
    stopped: bool = False
    timed_out: bool = False
    #: ``needs_attention`` or ``active_long_running``; absent while there is nothing to say. Why, and since when.
    activity_state: str | None = None
    activity_reason: str | None = None
    activity_since: int | None = None
    #: As of the last write of this file; the journal's own time is newer where a child only reports.
    last_activity_at: int | None = None
    current_tool: str | None = None
    current_tool_started_at: int | None = None
    #: The argument ``path`` of that tool.
    current_path: str | None = None
    tool_count: int = 0
    #: What the child reports of its models: answers, tokens, US dollars; absent where it reports nothing.
    turn_count: int = 0
    total_tokens: Tokens | None = None
    total_cost: float | None = None
    usage: Usage | None = None
    steering: SteeringLedger | None = None
    steps: tuple[Step, ...] = ()
    timeout_ms: int | None = None
    #: Unix time in milliseconds at which the work's deadline falls; absent while the run waits for a human.
    deadline_at: int | None = None
    remaining_ms: int | None = None
    waiting_for_human_ms: int = 0
    output_file: str | None = None
    #: Where the child can be resumed: its session file.
    session_file: str | None = None
    #: ``fresh`` or ``fork``, and the digests that a preflight of equal inputs shows (see ``LaunchFacts``).
    context: str | None = None
    definition_digest: str | None = None
    launch_contract_digest: str | None = None
    contract_digest: str | None = None
    #: What is loaded, by ids; absent where nobody resolved it. How many tool calls the child may attempt.
    launch_resolved_extensions: ResolvedExtensions | None = None
    tool_budget: ToolBudget | None = None
    #: What the run may have at most, and what that took away; absent without a ceiling.
    capability_ceiling: CapabilityCeiling | None = None
    capability_audit: CapabilityAudit | None = None


class ResultItem(Part, frozen=True, kw_only=True):
    """The outcome of one child."""

    agent: str
    success: bool
    exit_code: int | None = None
    output: str = ""
    error: str | None = None
    launch_contract_digest: str | None = None
    capability_ceiling: CapabilityCeiling | None = None
    capability_audit: CapabilityAudit | None = None


class RunResult(Record, frozen=True, kw_only=True):
    """``result.json``: how the run ended. Never overwritten, never removed by delivery.

    Attributes:
        output: The child's text, at most ``limits.MAX_RESULT_TEXT_BYTES``; cut texts have ``output_path``.
        output_path: File with the whole text where ``output`` is a preview.
        output_sha256: Digest of the whole text where ``output`` is a preview.
        structured: The value that was captured for the run's schema; unset where there is none. Null is a value.
        saved_output: File that the result is in besides the record, where the launch named one.
        artifacts: Paths that the child wrote, relative to the run's directory.
        signal: Name of the signal that ended the runner, such as ``SIGKILL``.
    """

    record_version: int = msgspec.field(default_factory=record_version)
    run_id: str
    session_id: str
    agent: str
    mode: str = "single"
    state: RunState
    success: bool
    exit_code: int
    summary: str = ""
    output: str = ""
    output_path: str | None = None
    output_bytes: int = 0
    output_sha256: str | None = None
    structured: Any = msgspec.UNSET
    #: How the child stood with its budget of tool calls; absent without one.
    tool_budget_state: BudgetState | None = None
    #: Likewise of what its own models may use.
    usage_budget_state: UsageBudgetState | None = None
    saved_output: str | None = None
    error: str | None = None
    reason: str | None = None
    signal: str | None = None
    results: tuple[ResultItem, ...] = ()
    artifacts: tuple[str, ...] = ()
    started_at: int | None = None
    ended_at: int
    duration_ms: int = 0
    waiting_for_human_ms: int = 0
    usage: Usage | None = None
    cwd: str = ""
    #: Where the child can be resumed: its session file.
    session_file: str | None = None
    cleanup: str = "proven"  # proven | unproven
    #: The run that started it; absent for a person's or a program's.
    parent_run_id: str | None = None
    #: ``runner``, or ``reconciler`` where the runner was gone before it could say how it ended.
    reported_by: str = "runner"
    #: As in the status.
    definition_digest: str | None = None
    launch_contract_digest: str | None = None
    contract_digest: str | None = None
    capability_ceiling: CapabilityCeiling | None = None
    capability_audit: CapabilityAudit | None = None


class ProcessTerminalProof(Record, frozen=True, kw_only=True):
    """``process-terminal.json``: what the process's real parent saw. Written once, by the nursery."""

    version: int = 1
    run_id: str
    state: str  # observed | unknown | not-started
    reason: str | None = None
    process: ProcessIdentity | None = None
    observed_at: int = 0
    exit_code: int | None = None
    signal: str | None = None
    #: The kernel killed it because memory ran out.
    is_out_of_memory: bool = False
    #: CPU seconds and peak memory, from ``wait4``.
    user_s: float | None = None
    system_s: float | None = None
    max_rss_kib: int | None = None


class ControlRequest(Record, frozen=True, kw_only=True):
    """``control/<kind>.json``. Its existence is the request; the content says who asked, for people."""

    type: str  # stop | timeout | interrupt
    requested_at: int
    by: ProcessIdentity
    source: str = ""
    reason: str = ""


class AskRecord(Record, frozen=True, kw_only=True):
    """``asks/<ask_id>/ask.json``: the whole batch, written once by the runner."""

    ask_id: str
    run_id: str
    session_id: str
    agent: str
    questions: tuple[Question, ...]
    asked_at: int
    asker: ProcessIdentity
    depth: int = 0
    #: The first run of the tree, for fairness between trees; '' where the asker is that itself.
    root_run_id: str = ""
    label: str = ""
    why: str = ""
    timeout_ms: int | None = None
    question_timeout_ms: int | None = None


class OutcomeKind(enum.StrEnum):
    """What became of one question."""

    ANSWERED = "answered"
    DECLINED = "declined"  # a human said that they will not answer
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    FAILED = "failed"  # the dialog's code raised


class QuestionOutcome(Record, frozen=True, kw_only=True):
    """``asks/<ask_id>/<n>.outcome.json``, n from 1: create-once, so a question has one outcome, whoever is first."""

    ask_id: str
    number: int
    kind: OutcomeKind
    answer: Answer | None = None
    reason: str = ""
    at: int


class AskOutcome(Record, frozen=True, kw_only=True):
    """``asks/<ask_id>/ask.outcome.json``: the result that the child got, computed by the runner alone."""

    ask_id: str
    result: AskResult
    at: int


class Completion(Record, frozen=True, kw_only=True):
    """``sessions/<key>/completions/<run_id>.<state>.json``: one end of one run, waiting for the session's host."""

    run_id: str
    session_id: str
    agent: str
    state: RunState
    summary: str
    ended_at: int
    delivery_key: str  # run_id:state
    #: The run that started it, which gets this end while it goes on; absent for a person's or a program's.
    parent_run_id: str | None = None


class JournalEvent(Record, frozen=True, kw_only=True):
    """One line of ``events.jsonl``. ``type`` begins with ``subagent.``; ``seq`` counts from 1 without gaps."""

    type: str
    seq: int
    ts: int
    run_id: str
    data: dict[str, Any] = {}
