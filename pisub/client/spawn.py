"""From "this agent, this task" to a submitted run and the message that starts its runner.

It owns discovery, trust and the making of ``spec.json`` on the client's side. Nothing here needs a broker or a loop, so
that the command line can launch without either.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from pisub import arguments
from pisub.agents.discovery import AgentFinder
from pisub.client.caller import asking_run
from pisub.client.launching import budget_for, ceiling_for, require_delegation, resolve_launch
from pisub.clock import SystemClock
from pisub.config import Settings, caller_environment, outer_depth
from pisub.errors import InvalidArgumentError, LaunchError, PisubError, RefusedError
from pisub.ids import check_id, check_session_id, new_id
from pisub.launchers.base import Launched
from pisub.launchers.local import LocalLauncher
from pisub.launchers.protocol import check_environment
from pisub.paths import runtime_dir, state_root
from pisub.preflight.plan import Wishes
from pisub.process import own_identity
from pisub.process_limits import soft_limits
from pisub.protocol.limits import DEFAULT_SPAWNS_PER_RUN, MAX_DURATION_MS, MAX_LABEL_CHARS, MAX_TASK_BYTES
from pisub.record.atomic import encode_record, write_new
from pisub.record.caps import Caps, admission
from pisub.record.layout import Layout
from pisub.record.model import LaunchNote
from pisub.record.reader import RunView, read_run
from pisub.record.submit import submit_run
from pisub.record.tree_usage import budget_below
from pisub.runs.budgets import ToolBudget
from pisub.runs.cascade import ending_kind
from pisub.runs.ceilings import CapabilityCeiling
from pisub.runs.lineage import lineage
from pisub.runs.reconcile import reconcile
from pisub.runs.spec import LaunchMessage, OnNoHost, RunSpec
from pisub.runs.usage_budget import UsageBudget
from pisub.utf8 import is_utf8


class SpawnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller wants run.

    Attributes:
        agent: Name of an agent.
        task: The prompt.
        session_id: The session that gets the run's questions and its completion.
        cwd: The run's working directory; None is the caller's.
        run_id: Chosen by the caller where the same request may be made twice; None makes one.
        timeout_ms: Deadline of the work; None is the settings' default, 0 is none.
        attached: Whether the run ends with this process.
        environ: The run's whole environment; None is the caller's.
        ceiling: What the run may have at most, besides what its session and the run above it allow.
        tool_budget: How many tool calls the child may attempt; None is what its agent's file says.
        wishes: What is wanted of the launch beside agent and task.
    """

    agent: str
    task: str
    session_id: str
    cwd: Path | None = None
    run_id: str | None = None
    label: str = ""
    timeout_ms: int | None = None
    on_no_host: OnNoHost = OnNoHost.FAIL
    attached: bool = False
    environ: Mapping[str, str] | None = None
    ceiling: CapabilityCeiling | None = None
    tool_budget: ToolBudget | None = None
    usage_budget: UsageBudget | None = None
    wishes: Wishes = Wishes()


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose ``spec.json`` is written.

    Attributes:
        message: What starts its runner.
        needs_launch: False where the id had been submitted before and its runner has begun.
    """

    spec: RunSpec
    message: LaunchMessage
    needs_launch: bool


def submit(
    settings: Settings, layout: Layout, request: SpawnRequest, *, finder: AgentFinder | None = None
) -> Submission:
    """Check a request and write it down as a run. Blocks on files, for some milliseconds.

    Raises:
        InvalidArgumentError: The directory, the task, the timeout or an id is not allowed; ``field`` says which.
        UnknownAgentError: There is no such agent.
        UntrustedProjectError: The agent is a project's that nobody has trusted.
        RefusedError: Children may not delegate that deep, their run is ending, or a ceiling forbids it.
        CapReachedError: A cap has no room for it.
    """
    return submit_all(settings, layout, [request], paths=["task"], finder=finder)[0]


def submit_all(
    settings: Settings,
    layout: Layout,
    requests: Sequence[SpawnRequest],
    *,
    paths: Sequence[str],
    finder: AgentFinder | None = None,
) -> list[Submission]:
    """Check several requests of one session and write all of them down as runs, or none.

    Args:
        settings: Caps, agents and defaults.
        layout: The record.
        requests: At least one.
        paths: How each is called in an error.
        finder: Finds agents, and remembers their files; None makes one.

    Raises:
        CapReachedError: They do not all fit. Nothing was written.
        PisubError: As in ``submit``, for any of them. Nothing was written.
    """
    finder = finder or AgentFinder(settings)
    specs: list[RunSpec] = []
    for request in requests:
        _check_types(request)
        specs.append(_spec(settings, layout, finder, request, _checked_cwd(request.cwd)))
    _check_outputs(specs, paths)
    caps = Caps(per_session=settings.max_spawns_per_session, active=settings.max_active_async_runs_per_session)
    created: list[str] = []
    try:
        with admission(layout, specs, caps, paths=paths):
            for spec in specs:
                if submit_run(layout, spec):
                    created.append(spec.run_id)  # noqa: PERF401  # one by one: an error must know how far it came
        return [
            _submission(settings, layout, spec, request, is_new=spec.run_id in created)
            for spec, request in zip(specs, requests, strict=True)
        ]
    except BaseException as error:  # a full disk in the middle, say: what is there already is never launched
        for run_id in created:
            with contextlib.suppress(PisubError, OSError):  # whoever reads it later ends it
                record_launch_error(layout, run_id, error)
        raise


def _submission(
    settings: Settings, layout: Layout, spec: RunSpec, request: SpawnRequest, *, is_new: bool
) -> Submission:
    needs_launch = is_new
    if not is_new:
        # Its first submitter may have died before the launch. Two runners for one id settle it: one leaves.
        existing = read_run(layout, spec.run_id)
        spec = _same_request(existing, spec)
        needs_launch = existing.started is None and not existing.state.is_terminal
    return Submission(spec=spec, message=launch_message(settings, spec, request.environ), needs_launch=needs_launch)


def spawn_blocking(
    settings: Settings,
    layout: Layout,
    request: SpawnRequest,
    *,
    launcher: LocalLauncher | None = None,
    finder: AgentFinder | None = None,
    is_given_up: Callable[[], bool] = lambda: False,
) -> RunSpec:
    """Submit a run and start its runner, without a loop and without a broker. Returns what was submitted.

    What is submitted is launched or ends here, whatever happens in between: else it would be queued for as long as
    this process lives.

    Args:
        settings: Where record and nursery are.
        layout: The record.
        request: What to run.
        launcher: What starts the runner; None makes one.
        finder: Finds agents, and remembers their files; None makes one.
        is_given_up: Asked between the two steps; true ends the run instead of launching it.

    Raises:
        LaunchError: The runner could not be started. The run is recorded as failed.
        PisubError: As in ``submit``.
    """
    layout.prepare()
    submission = submit(settings, layout, request, finder=finder)
    if submission.needs_launch:
        launch_submitted(layout, submission, launcher or LocalLauncher(settings), is_given_up)
    return submission.spec


def launch_submitted(
    layout: Layout,
    submission: Submission,
    launcher: LocalLauncher,
    is_given_up: Callable[[], bool] = lambda: False,
) -> None:
    """Start the runner of a submitted run, or end the run.

    Raises:
        LaunchError: The runner could not be started. The run is recorded as failed.
    """
    try:
        launched = _launch(launcher, submission.message, is_given_up)
    except (PisubError, OSError) as error:
        raise record_launch_error(layout, submission.spec.run_id, error) from error
    except BaseException as error:
        record_launch_error(layout, submission.spec.run_id, error)
        raise
    # Else the run would end as never started if this process ended before the runner's first write.
    note = LaunchNote(run_id=submission.spec.run_id, process=launched.process)
    with contextlib.suppress(PisubError, OSError):  # the runner is there, and says so itself in a moment
        write_new(layout.run(note.run_id).launched, encode_record(note), fsync=False)


def _launch(launcher: LocalLauncher, message: LaunchMessage, is_given_up: Callable[[], bool]) -> Launched:
    if is_given_up():
        raise LaunchError("its caller gave it up.")
    return launcher.launch_blocking(message)


def record_launch_error(layout: Layout, run_id: str, error: BaseException) -> LaunchError:
    """End a submitted run whose launch was answered with an error, and return the error to raise.

    Where a runner took the run all the same, the record keeps what the runner writes.
    """
    problem = LaunchError(f"Run {run_id} could not be started: {str(error) or type(error).__name__}")
    reconcile(layout, run_id, now_ms=SystemClock().wall_ms(), launch_error=problem.message)
    return problem


def _check_types(request: SpawnRequest) -> None:
    """Refuse what no annotation keeps a program from passing."""
    arguments.name(request.agent, "agent")
    arguments.text(request.label, "label", max_chars=MAX_LABEL_CHARS)
    arguments.truth(request.attached, "attached")
    if request.run_id is not None:
        arguments.text(request.run_id, "run_id")
    if request.environ is not None:
        check_environment(dict(arguments.texts(request.environ, "environ")))
    if request.on_no_host not in tuple(OnNoHost):
        allowed = ", ".join(OnNoHost)
        raise InvalidArgumentError(f"on_no_host is {request.on_no_host!a:.60}: use {allowed}.", field="on_no_host")


def _checked_cwd(cwd: Path | None) -> Path:
    directory = (Path.cwd() if cwd is None else arguments.path(cwd, "cwd").expanduser()).absolute()
    if not directory.is_dir():
        raise InvalidArgumentError(f"The working directory {directory} does not exist.", field="cwd")
    if not is_utf8(str(directory)):
        raise InvalidArgumentError(
            f"The working directory {str(directory)!a} has a name that is not UTF-8.", field="cwd"
        )
    return directory


def _spec(settings: Settings, layout: Layout, finder: AgentFinder, request: SpawnRequest, cwd: Path) -> RunSpec:
    run_id = new_id() if request.run_id is None else check_id(request.run_id)
    session_id = check_session_id(request.session_id)
    parent = asking_run(layout)
    if parent is not None:
        _check_parent(layout, parent, session_id)
    resolved = resolve_launch(
        settings,
        layout,
        finder,
        agent=request.agent,
        task=_checked_task(request.task),
        cwd=cwd,
        run_id=run_id,
        ceiling=ceiling_for(layout, session_id, parent, request.ceiling),
        wishes=request.wishes,
    )
    place = lineage(
        None if parent is None else parent.spec,
        max_depth=settings.max_depth,
        agent_max_depth=resolved.agent.max_depth,
        outer_depth=outer_depth(),
    )
    return RunSpec(
        run_id=run_id,
        session_id=session_id,
        agent=resolved.agent,
        task=request.task,
        cwd=str(cwd),
        submitter=own_identity(),
        submitted_at=SystemClock().wall_ms(),
        attached_to=own_identity() if request.attached else None,
        label=request.label,
        depth=place.depth,
        max_depth=place.max_depth,
        max_spawns_per_run=settings.max_spawns_per_run or DEFAULT_SPAWNS_PER_RUN,
        parent_run_id=place.parent_run_id,
        root_run_id=place.root_run_id,
        timeout_ms=_checked_timeout(request.timeout_ms, resolved.timeout_ms, settings.timeout_ms),
        on_no_host=OnNoHost(request.on_no_host),
        ask_timeout_ms=settings.ask_timeout_ms or None,
        supervisor_timeout_ms=settings.supervisor_timeout_ms,
        question_timeout_ms=settings.question_timeout_ms or None,
        launch=resolved.facts,
        capability_ceiling=resolved.ceiling,
        capability_audit=resolved.audit,
        output_schema=resolved.output_schema,
        usage_budget=budget_below(layout, parent, request.usage_budget),
        tool_budget=budget_for(request.tool_budget, resolved),
    )


def _check_outputs(specs: Sequence[RunSpec], paths: Sequence[str]) -> None:
    """Refuse two runs of a batch that would write one file, however each names it."""
    taken: dict[str, str] = {}
    for spec, path in zip(specs, paths, strict=True):
        output = None if spec.launch is None else spec.launch.output_path
        if output is None:
            continue
        place = os.path.realpath(output).casefold()
        if place in taken:
            raise InvalidArgumentError(
                f"{taken[place]} and {path} would both write {output}: give each an output of its own.", field="output"
            )
        taken[place] = path


def _check_parent(layout: Layout, parent: RunView, session_id: str) -> None:
    """Refuse a child of a run that ends or has ended: nobody would be there for it. And one of another session."""
    if parent.state.is_terminal or ending_kind(layout.run(parent.run_id), parent) is not None:
        raise RefusedError(
            f"Run {parent.run_id}, whose process this is, {'has ended' if parent.state.is_terminal else 'is ending'}: "
            "it starts nothing more.",
            code="parent_ended",
        )
    if session_id != parent.spec.session_id:
        raise RefusedError(
            f"What run {parent.run_id} starts belongs to its session, {parent.spec.session_id!a}: its questions and "
            "its end go to that host. Name no other session.",
            code="session_not_own",
        )
    require_delegation(parent)


def _checked_task(task: str) -> str:
    size = len(arguments.text(task, "task").encode())
    if not task.strip():
        raise InvalidArgumentError("The task is empty: say what the agent should do.", field="task")
    if size > MAX_TASK_BYTES:
        raise InvalidArgumentError(
            f"The task has {size} bytes; at most {MAX_TASK_BYTES} are allowed. Put it in a file and name the file.",
            field="task",
        )
    return task


def _checked_timeout(*wanted: int | None) -> int | None:
    timeout_ms = next(each for each in wanted if each is not None)
    return arguments.whole_number(timeout_ms, "timeout_ms", lowest=0, highest=MAX_DURATION_MS) or None


def _same_request(existing: RunView, wanted: RunSpec) -> RunSpec:
    found = existing.spec
    if (found.task, found.cwd, found.agent.name) != (wanted.task, wanted.cwd, wanted.agent.name):
        raise RefusedError(
            f"Run {wanted.run_id} was submitted before with another agent, task or directory: choose a new id.",
            code="run_id_in_use",
        )
    return found


def launch_message(settings: Settings, spec: RunSpec, environ: Mapping[str, str] | None) -> LaunchMessage:
    """Return what starts the runner of a run: its caller's environment and limits, which are in no file."""
    return LaunchMessage(
        run_id=spec.run_id,
        home=str(state_root(settings)),
        runtime_dir=str(runtime_dir(settings)),
        environ=caller_environment() if environ is None else dict(environ),
        cwd=spec.cwd,
        sys_path=tuple(path for path in sys.path if path),
        umask=_own_umask(),
        nofile=resource.getrlimit(resource.RLIMIT_NOFILE),
        soft_limits=soft_limits(),
    )


def _own_umask() -> int:
    """Read the umask without setting it: another thread may be making a file."""
    try:
        text = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0o022
    found = next((line for line in text.splitlines() if line.startswith("Umask:")), "Umask: 022")
    return int(found.split()[1], 8)
