"""One run, composed: the lock, the one start, the shell in its thread, the engine in the main thread.

Called in a process of its own, forked from a nursery or freshly executed. The caller leaves by ``os._exit`` with the
code returned: threads that the agent left behind are not waited for.
"""

from __future__ import annotations

import faulthandler
import io
import os
import socket
import sys
from typing import NamedTuple

from structlog.typing import FilteringBoundLogger

from pisub.clock import SystemClock
from pisub.config import (
    DEPTH_VARIABLE,
    HOME_VARIABLE,
    MAX_DEPTH_VARIABLE,
    OUTPUT_SCHEMA_VARIABLE,
    RUN_ID_VARIABLE,
    RUNTIME_DIR_VARIABLE,
    SESSION_VARIABLE,
    STRUCTURED_OUTPUT_VARIABLE,
    Settings,
)
from pisub.engines.base import EngineContext, Settled
from pisub.engines.lookup import create_engine
from pisub.errors import PisubError
from pisub.process import own_identity
from pisub.protocol.limits import MAX_OUTPUT_BYTES
from pisub.protocol.version import LIFECYCLE_ARTIFACT_VERSION
from pisub.record.atomic import encode_record, read_record, write_new
from pisub.record.journal import Journal
from pisub.record.layout import Layout, RunPaths
from pisub.record.lock import RunLock
from pisub.record.model import Started
from pisub.record.results import read_pending, read_result
from pisub.record.sessions_of_runs import begin_session
from pisub.runs.attention import thresholds_of
from pisub.runs.spec import LaunchMessage, RunSpec

from .ceiling import applied, enforced, forbidden
from .ending import Ending
from .log import make_log
from .machine import Machine
from .patience import patiently
from .process_tree import ProcessTree, become_subreaper
from .recorder import Recorder, result_file
from .shell import RunnerShell
from .signals import route_signals

#: A reader that reconciles holds the lock for milliseconds; who holds it longer is another runner.
LOCK_PATIENCE_S = 5.0
#: There is no such run, or its spec cannot be read (sysexits' EX_NOINPUT).
EXIT_NO_SPEC = 66


def run(message: LaunchMessage, *, settings: Settings, max_output_bytes: int = MAX_OUTPUT_BYTES) -> int:
    """Carry out a run in this process. Returns when its end is written; only then, or never, does it return.

    Args:
        message: What was launched.
        settings: Where record and broker are.
        max_output_bytes: Bound of a child program's captured output.

    Returns:
        0 when this process did what there was to do, also when the run failed, and when another process runs it or
        ran it before.
    """
    faulthandler.enable()
    log = make_log(settings.log_level).bind(run_id=message.run_id, pid=os.getpid())
    layout = Layout.of(settings)
    paths = layout.run(message.run_id)
    try:
        spec = patiently(lambda: read_record(paths.spec, RunSpec))
        spec = None if spec is None else enforced(layout, spec)
        lock = None if spec is None else patiently(lambda: RunLock.acquire(paths.lock, wait_s=LOCK_PATIENCE_S))
    except (PisubError, OSError) as error:
        log.error("spec_not_read", error=str(error))  # noqa: TRY400  # an environment's fault, not a traceback's matter
        return EXIT_NO_SPEC
    if spec is None:
        log.error("spec_missing")
        return EXIT_NO_SPEC
    if lock is None:
        log.info("run_held_elsewhere")
        return 0
    # Before anybody can learn who runs it: from then on a signal may come, and by default it would kill.
    reading, writing = route_signals()
    with lock, reading, writing:
        started = Started(run_id=spec.run_id, process=own_identity(), started_at=SystemClock().wall_ms())
        # A pending result before the start is a reconciler's: somebody said that this run never started.
        is_over = read_result(paths) is not None or read_pending(paths) is not None
        if is_over or not patiently(lambda: write_new(paths.started, encode_record(started), fsync=False)):
            log.info("run_started_before")
            return 0
        _carry_out(_Job(message, spec, started, lock, layout, settings, log, max_output_bytes, reading))
    return 0


class _Job(NamedTuple):
    """What is known once the start is claimed."""

    message: LaunchMessage
    spec: RunSpec
    started: Started
    lock: RunLock
    layout: Layout
    settings: Settings
    log: FilteringBoundLogger
    max_output_bytes: int
    signals: socket.socket


def _carry_out(job: _Job) -> None:
    message, spec, started, lock, layout, settings, log, max_output_bytes, signals = job
    paths = layout.run(spec.run_id)
    clock = SystemClock()
    journal = patiently(lambda: Journal.open(paths, spec.run_id, now_ms=clock.wall_ms()))
    recorder = Recorder(
        paths,
        spec,
        journal,
        process=started.process,
        started_at=started.started_at,
        clock=clock,
        thresholds=thresholds_of(settings, None if spec.launch is None else spec.launch.thinking),
    )
    recorder.write_line(
        "subagent.run.started",
        {
            "lifecycleArtifactVersion": LIFECYCLE_ARTIFACT_VERSION,
            "mode": "single",
            "agent": spec.agent.name,
            "cwd": spec.cwd,
            "pid": started.process.pid,
            "launchContractDigest": None if spec.launch is None else spec.launch.launch_contract_digest,
        },
    )
    if (ceiling := applied(spec)) is not None:
        recorder.write_line("subagent.capability-ceiling.applied", ceiling)
    timeout_s = None if spec.timeout_ms is None else spec.timeout_ms / 1000
    machine = Machine(clock.monotonic(), timeout_s=timeout_s, stop_grace_s=spec.stop_grace_ms / 1000)
    ending = Ending(layout, lock, recorder, journal, log)
    failure = forbidden(spec) or _enter(message, spec)
    if not become_subreaper():
        log.warning("no_subreaper")
    shell = RunnerShell(
        settings=settings,
        layout=layout,
        spec=spec,
        recorder=recorder,
        machine=machine,
        ending=ending,
        process=started.process,
        started_at=started.started_at,
        clock=clock,
        tree=ProcessTree(),
        signals=signals,
        log=log,
    )
    log.info("run_started", agent=spec.agent.name, engine=spec.agent.runner.type)
    context = _context(message, spec, paths, max_output_bytes)
    if context.session_file:
        patiently(lambda: begin_session(paths, spec))
    engine = create_engine(spec.agent.runner, context, shell)
    if shell.start(engine):
        # Whatever escapes an engine is a bug, but a run never ends in silence for it.
        settled = Settled(error="The runner failed: see runner.stderr.log.", reason="runner-error")
        try:
            settled = failure or engine.run()
        finally:
            shell.settle(settled)
            shell.join()


def _enter(message: LaunchMessage, spec: RunSpec) -> Settled | None:
    """Make this process the run's: its directory, and what its children inherit. Returns the failure, if it is one."""
    os.environ.update(
        {
            RUN_ID_VARIABLE: spec.run_id,
            DEPTH_VARIABLE: str(spec.depth + 1),
            MAX_DEPTH_VARIABLE: str(spec.max_depth),
            SESSION_VARIABLE: spec.session_id,
            # A `pisub` that the child starts works in this run's record, also where a program's settings chose it.
            HOME_VARIABLE: message.home,
            RUNTIME_DIR_VARIABLE: message.runtime_dir,
        }
    )
    for name in (OUTPUT_SCHEMA_VARIABLE, STRUCTURED_OUTPUT_VARIABLE):
        os.environ.pop(name, None)  # those of a program that started this run: its result is its own
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # a hung agent's thread may hold the buffer when the process leaves
    try:
        os.chdir(spec.cwd)
    except OSError as error:
        sentence = f"The working directory {spec.cwd!r} cannot be entered: {error.strerror}."
        return Settled(error=sentence, reason="bad-cwd")
    return None


def _context(message: LaunchMessage, spec: RunSpec, paths: RunPaths, max_output_bytes: int) -> EngineContext:
    return EngineContext(
        run_id=spec.run_id,
        session_id=spec.session_id,
        agent=spec.agent.name,
        task=spec.task,
        cwd=spec.cwd,
        artifacts_dir=str(paths.artifacts),
        output_file=str(paths.output(0)),
        result_file=str(result_file(paths)),
        system_prompt=spec.agent.system_prompt,
        depth=spec.depth,
        can_ask=spec.agent.can_ask,
        supervisor_timeout_ms=spec.supervisor_timeout_ms,
        sys_path=message.sys_path,
        max_output_bytes=max_output_bytes,
        # A program of the user's keeps its session, if it has one, where we cannot know.
        session_file=str(paths.session) if spec.agent.runner.type == "python" else "",
        resumed_from=spec.resumed_from or "",
        resume_message=spec.resume_message,
        output_schema=spec.output_schema,
        tool_budget=spec.tool_budget,
        usage_budget=spec.usage_budget,
    )
