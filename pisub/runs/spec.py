"""What a run is asked to do: the whole of it, fixed before the launch, in ``spec.json``.

A runner reads nothing else to know its job. The environment is not here: it goes to the runner through a descriptor.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from pisub.process import ProcessIdentity
from pisub.protocol.base import Part, Record
from pisub.protocol.limits import (
    DEFAULT_ASK_TIMEOUT_MS,
    DEFAULT_MAX_DEPTH,
    DEFAULT_QUESTION_TIMEOUT_MS,
    DEFAULT_SPAWNS_PER_RUN,
    DEFAULT_SUPERVISOR_TIMEOUT_MS,
    DEFAULT_TIMEOUT_MS,
    MAX_EXTENSIONS_SHOWN,
)
from pisub.protocol.version import record_version
from pisub.runs.budgets import ToolBudget
from pisub.runs.ceilings import CapabilityAudit, CapabilityCeiling
from pisub.runs.usage_budget import UsageBudget


class OnNoHost(enum.StrEnum):
    """What a question does when no host holds the session's role."""

    FAIL = "fail"  # ends as no-host, at once unless a host died a moment ago
    WAIT = "wait"  # stays open for whoever comes


class RunnerSpec(Part, frozen=True, kw_only=True):
    """What drives the child: the agent's ``runner`` field, resolved.

    Attributes:
        type: ``python`` or ``external-cli``.
        target: For python: ``module:function``, or ``/absolute/file.py:function``.
        argv: For external-cli: the program and its arguments; the prompt goes to its standard input.
        import_paths: Directories put before ``sys.path`` for a python target: the agent file's project root.
    """

    type: Literal["python", "external-cli"]
    target: str = ""
    argv: tuple[str, ...] = ()
    import_paths: tuple[str, ...] = ()


class AgentSnapshot(Part, frozen=True, kw_only=True):
    """The agent as it was when the run was submitted."""

    name: str
    description: str = ""
    source: str = "builtin"
    file: str = ""
    runner: RunnerSpec
    system_prompt: str = ""
    #: Whether the child may call ``ask_user_via_host``.
    can_ask: bool = True
    #: How deep what it starts may delegate at most (``maxSubagentDepth``); None sets no limit of its own.
    max_depth: int | None = None


class ResolvedExtensions(Part, frozen=True, kw_only=True):
    """Which extensions a launch was resolved to, without their names: a path or a name may be private.

    Attributes:
        extensions: An id for each, in the order in which they are loaded; at most ``MAX_EXTENSIONS_SHOWN``.
        omitted: How many more there are.
    """

    version: int = 1
    source: str = "launch-resolved"
    extensions: tuple[str, ...] = ()
    omitted: int = 0


def resolved_extensions(names: Sequence[str]) -> ResolvedExtensions:
    """Return the public form of what is loaded: of each the beginning of its SHA-256."""
    ids = [f"sha256:{hashlib.sha256(each.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}" for each in names]
    return ResolvedExtensions(
        extensions=tuple(ids[:MAX_EXTENSIONS_SHOWN]), omitted=max(0, len(ids) - MAX_EXTENSIONS_SHOWN)
    )


class LaunchFacts(Part, frozen=True, kw_only=True):
    """What a launch was resolved to, with the digests that a preflight of equal inputs shows.

    Attributes:
        definition_digest: Of the agent as its file says it.
        launch_contract_digest: Of what the child is launched with.
        contract_digest: Of the whole contract, this run's paths included.
        context: ``fresh`` or ``fork``.
        thinking: How much its model is to think: a level; None leaves it to the model.
        effective_tools: What the child may call; None where nothing restricts it.
        output_path: Where its result is written besides the record.
        resolved_extensions: What is loaded; null where nobody said, as in earlier records.
        output_mode: ``inline``, or ``file-only``: the result says only where that is.
    """

    definition_digest: str
    launch_contract_digest: str
    contract_digest: str
    context: str = "fresh"
    thinking: str | None = None
    effective_tools: tuple[str, ...] | None = None
    output_path: str | None = None
    output_mode: str = "inline"
    resolved_extensions: ResolvedExtensions | None = None


class RunSpec(Record, frozen=True, kw_only=True):
    """One run, as submitted. Written once (create-once), 0600.

    Attributes:
        submitter: Who wrote it. While it lives and nothing has started, the run is ``queued``.
        attached_to: A process whose death ends the run; null for a detached run.
        timeout_ms: Work time in milliseconds, waiting for a human not counted; null is no deadline.
        ask_timeout_ms: For a whole ask from its first dialog; null is no limit. ``question_timeout_ms`` likewise.
        supervisor_timeout_ms: How long its child waits for a word of its supervisor, where it says nothing else.
        depth: How many runs are above it: 0 for a person's or a program's.
        max_depth: How deep its own processes may delegate; see ``pisub.runs.lineage``.
        parent_run_id: The run that started it; null for a person's or a program's.
        root_run_id: The first run above it; null where it is that itself.
        max_spawns_per_run: Of a first run: how many runs may be started below it in all.
        task: The prompt, at most ``limits.MAX_TASK_BYTES`` of UTF-8. A run that resumes another has that one's task.
        launch: What the launch was resolved to; null for a run that nobody resolved, as in tests of the runner.
        capability_ceiling: What the run may have at most, and what it starts. A snapshot: it holds for good.
        capability_audit: What the ceiling took away.
        usage_budget: What its models, and those of what it starts, may use; null is any amount.
        tool_budget: How many tool calls the child may attempt; null is any number.
        output_schema: What the run's structured result must fit; null where it gives a text.
        resumed_from: The run that this one goes on with; null for a fresh one.
        resume_message: What the child was told with the resume.
    """

    record_version: int = msgspec.field(default_factory=record_version)
    run_id: str
    session_id: str
    agent: AgentSnapshot
    task: str
    cwd: str
    submitter: ProcessIdentity
    submitted_at: int
    attached_to: ProcessIdentity | None = None
    label: str = ""
    depth: int = 0
    max_depth: int = DEFAULT_MAX_DEPTH
    max_spawns_per_run: int = DEFAULT_SPAWNS_PER_RUN
    parent_run_id: str | None = None
    root_run_id: str | None = None
    timeout_ms: int | None = DEFAULT_TIMEOUT_MS
    on_no_host: OnNoHost = OnNoHost.FAIL
    ask_timeout_ms: int | None = DEFAULT_ASK_TIMEOUT_MS
    question_timeout_ms: int | None = DEFAULT_QUESTION_TIMEOUT_MS
    supervisor_timeout_ms: int = DEFAULT_SUPERVISOR_TIMEOUT_MS
    stop_grace_ms: int = 3_000
    launch: LaunchFacts | None = None
    capability_ceiling: CapabilityCeiling | None = None
    capability_audit: CapabilityAudit | None = None
    output_schema: dict[str, Any] | None = None
    tool_budget: ToolBudget | None = None
    usage_budget: UsageBudget | None = None
    resumed_from: str | None = None
    resume_message: str = ""


class LaunchMessage(Record, frozen=True, kw_only=True):
    """What reaches a runner besides its spec: everything that must not be in a file or in argv.

    It is msgpack in an anonymous memory file (nursery) or a pipe on standard input (plain exec), never on disk.
    """

    run_id: str
    #: State root and runtime directory, absolute: the runner uses these, whatever its environment says.
    home: str
    runtime_dir: str
    environ: dict[str, str]
    cwd: str
    #: The caller's ``sys.path`` entries, appended just before the user's target is imported.
    sys_path: tuple[str, ...] = ()
    umask: int = 0o077
    #: Soft and hard ``RLIMIT_NOFILE`` of the caller.
    nofile: tuple[int, int] | None = None
    #: Other soft limits of the caller, by name; those that are not here are unlimited there.
    soft_limits: dict[str, int] = {}
