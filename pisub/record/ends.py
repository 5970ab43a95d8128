"""How a run ended, computed from what is known: pure, no file and no clock.

The terminal status always follows from the last status and the result, by one function, so that a commit that was cut
off after the result is finished to the same status that it would have had.
"""

from __future__ import annotations

import msgspec

from pisub.process import ProcessIdentity, boot_id
from pisub.protocol.runs import RunState
from pisub.record.launch_facts import result_of_launch, status_of_launch
from pisub.record.model import (
    ControlRequest,
    ProcessTerminalProof,
    ResultItem,
    RunResult,
    RunStatus,
    Started,
    Step,
)
from pisub.runs.spec import RunSpec

_STEP_STATES = {
    RunState.COMPLETE: "complete",
    RunState.STOPPED: "stopped",
    RunState.PAUSED: "paused",
    RunState.REJECTED: "rejected",
}
#: Exit code of a runner whose record refuses to be written, and always will (sysexits' EX_IOERR).
EXIT_UNWRITTEN = 74
_OPEN_STEP = frozenset({"running", "pending"})


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run whose process is gone without a result.

    Attributes:
        started: Its start; None where it never started, or the file is lost.
        status: Its last status.
        was_started: Whether it ever started.
        proof: What the process's parent saw.
        requests: Every control request, taken or not.
        seen_at: The last moment at which it was known to live, in Unix milliseconds.
        now_ms: The moment of the finding.
        launch_error: Why it could not be started, in a sentence.
        declared_by: Who declared it dead, where nobody could tell.
        stderr_tail: The end of the runner's standard error.
    """

    spec: RunSpec
    started: Started | None = None
    status: RunStatus | None = None
    was_started: bool = False
    proof: ProcessTerminalProof | None = None
    requests: dict[str, ControlRequest] = {}
    seen_at: int = 0
    now_ms: int
    launch_error: str | None = None
    declared_by: str | None = None
    stderr_tail: str = ""


def initial_status(spec: RunSpec, process: ProcessIdentity, *, started_at: int) -> RunStatus:
    """Return the status with which a run begins: running, one step."""
    status = RunStatus(
        run_id=spec.run_id,
        session_id=spec.session_id,
        state=RunState.RUNNING,
        pid=process.pid,
        process=process,
        cwd=spec.cwd,
        started_at=started_at,
        last_update=started_at,
        steps=(Step(agent=spec.agent.name, status="running", label=spec.label, started_at=started_at),),
        timeout_ms=spec.timeout_ms,
    )
    return status_of_launch(status, spec)


def end_status(last: RunStatus, result: RunResult) -> RunStatus:
    """Return the terminal status that goes with a result. Applied twice it gives the same."""
    return msgspec.structs.replace(
        last,
        state=result.state,
        error=result.error,
        reason=result.reason,
        stopped=result.state is RunState.STOPPED,
        timed_out=result.reason in {"timeout", "ancestor-timeout"},
        ended_at=result.ended_at,
        last_update=result.ended_at,
        activity_state=None,
        activity_reason=None,
        activity_since=None,
        current_tool=None,
        current_tool_started_at=None,
        current_path=None,
        deadline_at=None,
        waiting_for_human_ms=max(last.waiting_for_human_ms, result.waiting_for_human_ms),
        output_file=result.output_path or last.output_file,
        steps=tuple(_end_step(step, result) for step in last.steps),
    )


def result_of_death(death: Death) -> RunResult:
    """Return the result of a run that ended without saying how."""
    state, reason, error = _cause(death)
    started_at = death.spec.submitted_at
    if death.started is not None:
        started_at = death.started.started_at
    elif death.status is not None:
        started_at = death.status.started_at
    ended_at = max(_ended_at(death), started_at)
    if death.stderr_tail and state is RunState.FAILED:
        error = f"{error}\n{death.stderr_tail}"
    waited_ms = 0 if death.status is None else death.status.waiting_for_human_ms
    result = RunResult(
        run_id=death.spec.run_id,
        session_id=death.spec.session_id,
        agent=death.spec.agent.name,
        state=state,
        success=False,
        exit_code=1,
        summary=error.partition("\n")[0],
        error=error,
        reason=reason,
        signal=None if death.proof is None else death.proof.signal,
        results=(ResultItem(agent=death.spec.agent.name, success=False, exit_code=1, error=error),),
        started_at=started_at if death.was_started else None,
        ended_at=ended_at,
        duration_ms=ended_at - started_at if death.was_started else 0,
        waiting_for_human_ms=waited_ms,
        usage=None if death.status is None else death.status.usage,
        cwd=death.spec.cwd,
        session_file=None if death.status is None else death.status.session_file,
        # Nobody verified that the tree of a dead runner is empty.
        cleanup="unproven" if death.was_started else "proven",
        parent_run_id=death.spec.parent_run_id,
        reported_by="reconciler",
    )
    return result_of_launch(result, death.spec)


def result_of_status(spec: RunSpec, status: RunStatus) -> RunResult:
    """Return a result for a terminal status whose result was lost."""
    ended_at = status.ended_at or status.last_update
    is_success = status.state is RunState.COMPLETE
    result = RunResult(
        run_id=spec.run_id,
        session_id=spec.session_id,
        agent=spec.agent.name,
        state=status.state,
        success=is_success,
        exit_code=0 if is_success or status.state is RunState.PAUSED else 1,
        summary="The result was lost; the status is all that is left.",
        error=status.error,
        reason=status.reason,
        started_at=status.started_at,
        ended_at=ended_at,
        duration_ms=max(0, ended_at - status.started_at),
        waiting_for_human_ms=status.waiting_for_human_ms,
        usage=status.usage,
        cwd=status.cwd,
        cleanup="unproven",
        parent_run_id=spec.parent_run_id,
        reported_by="reconciler",
    )
    return result_of_launch(result, spec)


def _cause(death: Death) -> tuple[RunState, str, str]:
    """Return state, reason and sentence. A wish to end it that is older than the death explains the death."""
    stop = death.requests.get("stop")
    if stop is not None and _is_before_death(stop, death.proof):
        return RunState.STOPPED, _reason(stop), f"Stopped: {stop.reason}" if stop.reason else "Stopped on request."
    if not death.was_started:
        return (
            RunState.FAILED,
            "never-started",
            death.launch_error or "The run never started: its launcher or its process died.",
        )
    timeout = death.requests.get("timeout")
    if timeout is not None and _is_before_death(timeout, death.proof):
        return RunState.FAILED, _reason(timeout), timeout.reason or "The run reached its deadline."
    if death.declared_by is not None:
        return RunState.FAILED, "declared-dead", f"Declared dead by {death.declared_by}; nobody could tell otherwise."
    return RunState.FAILED, *_cause_of_death(death)


def _reason(request: ControlRequest) -> str:
    """Return the reason of an end that was asked for: of one passed on by a run above, that it was."""
    return request.source if request.source == f"ancestor-{request.type}" else request.type


def _cause_of_death(death: Death) -> tuple[str, str]:
    proof = death.proof
    if proof is not None and proof.is_out_of_memory:
        peak = "" if not proof.max_rss_kib else f" It used {proof.max_rss_kib // 1024} MiB at most."
        return "out-of-memory", f"The kernel killed the runner because memory ran out.{peak}"
    if proof is not None and proof.signal is not None:
        return "runner-died", f"The runner was killed by {proof.signal}."
    if proof is not None and proof.exit_code == EXIT_UNWRITTEN:
        return "record-refused", (
            "The runner could not write how it ended, and left without: its agent closed files that were not its own, "
            "or lowered a limit of the process for good, or the disk refused for too long. The result is lost."
        )
    if proof is not None and proof.exit_code is not None:
        return "runner-died", f"The runner ended with exit code {proof.exit_code} and without a result."
    process = death.started.process if death.started else death.status.process if death.status else None
    if process is not None and process.boot_id and process.boot_id != boot_id():
        return "reboot", "The machine was restarted while the run went on."
    return "runner-died", "The runner died, and nobody saw how."


def _is_before_death(request: ControlRequest, proof: ProcessTerminalProof | None) -> bool:
    return proof is None or proof.observed_at == 0 or request.requested_at <= proof.observed_at


def _ended_at(death: Death) -> int:
    if death.proof is not None and death.proof.observed_at:
        return death.proof.observed_at
    return death.seen_at if death.was_started and death.seen_at else death.now_ms


def _end_step(step: Step, result: RunResult) -> Step:
    if step.status not in _OPEN_STEP:
        return step
    item = result.results[step.index] if step.index < len(result.results) else None
    is_success = result.success if item is None else item.success
    status = "complete" if is_success else _STEP_STATES.get(result.state, "failed")
    return msgspec.structs.replace(
        step,
        status="failed" if status == "complete" and not is_success else status,
        ended_at=result.ended_at,
        duration_ms=None if step.started_at is None else max(0, result.ended_at - step.started_at),
        exit_code=(0 if is_success else 1) if item is None or item.exit_code is None else item.exit_code,
        error=result.error if item is None else item.error,
    )
