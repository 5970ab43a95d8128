"""What a run writes while it runs: journal, status, and in the end the values of its result.

Owns the open journal and the figures of the status. Lines are appended once a turn, the status at most every
``STATUS_COALESCE_S`` but at once on a change of state. A disk that is full or refuses fails no run: what could not be
written is tried again, and counted.
"""

from __future__ import annotations

import codecs
import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pisub.clock import Clock
from pisub.engines import base as eng
from pisub.engines.output import BoundedLog
from pisub.process import ProcessIdentity
from pisub.protocol.limits import KIB, MAX_RESULT_TEXT_BYTES, STATUS_COALESCE_S
from pisub.protocol.runs import RunState
from pisub.record.journal import Journal
from pisub.record.launch_facts import result_of_launch, status_of_launch
from pisub.record.layout import RunPaths
from pisub.record.model import JournalEvent, ResultItem, RunResult, RunStatus, SteeringLedger, Step
from pisub.record.status import write_status
from pisub.runs.attention import Attention, Thresholds
from pisub.runs.spec import RunSpec
from pisub.runs.usage import Usage, UsageMeter, tokens_of
from pisub.runs.usage_budget import usage_state
from pisub.utf8 import without_surrogates

from .activity import ActivityWatch
from .effects import Verdict
from .machine import Phase, Snapshot
from .output_file import Saved, save_output

#: ``currentTool`` of a run that waits for its supervisor (contract, delegation 6).
SUPERVISOR_TOOL = "contact_supervisor"
_MAX_LINE_CHARS = 8 * KIB
_SUMMARY_CHARS = 200
_MAX_LISTED_ARTIFACTS = 1_000


class _Tool(NamedTuple):
    """A tool that is in use: since when by the loop's clock, and as Unix time; on what file, where it says so."""

    name: str
    since: float
    started_at: int
    path: str | None


class Recorder:
    """One run's record while it is written. Used by the shell's thread alone."""

    def __init__(
        self,
        paths: RunPaths,
        spec: RunSpec,
        journal: Journal,
        *,
        process: ProcessIdentity,
        started_at: int,
        clock: Clock,
        thresholds: Thresholds,
    ) -> None:
        self._paths = paths
        self._spec = spec
        self._journal = journal
        self._process = process
        self._started_at = started_at
        self._clock = clock
        self._activity = ActivityWatch(clock.monotonic(), thresholds)
        self._attention: Attention | None = None
        self._steering: SteeringLedger | None = None
        self._tool_count = 0
        self._tools: dict[int, _Tool] = {}
        self._meter = UsageMeter()
        self._artifacts: dict[str, int] = {}
        self._outputs: dict[str, _Lines] = {}
        self._newest: JournalEvent | None = None
        self._dirty_since: float | None = None
        self._must_write_now = False
        self._saved: Saved | None = None

    @property
    def has_artifacts(self) -> bool:
        """Whether the child wrote a file of the run."""
        return bool(self._artifacts)

    def write_line(self, kind: str, data: dict[str, Any] | None = None, *, is_diagnostic: bool = False) -> None:
        """Append one event to the journal; it is on disk after ``flush``."""
        event = self._journal.append(kind, data or {}, ts=self._clock.wall_ms(), is_diagnostic=is_diagnostic)
        if event is not None:
            self._newest = event

    def mark_status(self, now: float, *, at_once: bool) -> None:
        """Say that the status changed."""
        self._dirty_since = now if self._dirty_since is None else self._dirty_since
        self._must_write_now = self._must_write_now or at_once

    def note_steering(self, ledger: SteeringLedger | None, now: float) -> None:
        """Show what became of the messages to the child."""
        self._steering = ledger
        self.mark_status(now, at_once=False)

    def note_supervised(self, is_waiting: bool) -> None:
        """The run begins to wait for its supervisor, or does no longer."""
        self._activity.note_supervised(self._clock.monotonic(), is_waiting=is_waiting)

    def take(self, event: eng.EngineEvent, now: float) -> None:
        """Write down what the child reports."""
        self._activity.take(event, now)
        match event:
            case eng.LogLine(text):
                self.write_line("subagent.child.log", {"text": text}, is_diagnostic=True)
            case eng.ToolStarted(call_id, name, arguments):
                self._tool_count += 1
                path = arguments.get("path")
                self._tools[call_id] = _Tool(name, now, self._clock.wall_ms(), path if isinstance(path, str) else None)
                data = {"tool": name, "args": arguments, "callId": call_id}
                self.write_line("subagent.tool.started", data, is_diagnostic=True)
                self.mark_status(now, at_once=False)
            case eng.ToolEnded(call_id, name, is_error):
                tool = self._tools.pop(call_id, None)
                lasted_ms = 0 if tool is None else round((now - tool.since) * 1000)
                data = {"tool": name, "callId": call_id, "durationMs": lasted_ms, "isError": is_error}
                self.write_line("subagent.tool.completed", data, is_diagnostic=True)
                self.mark_status(now, at_once=False)
            case eng.OutputBytes(stream, data):
                for line in self._outputs.setdefault(stream, _Lines()).take(data):
                    self.write_line(f"subagent.child.{stream}", {"text": line}, is_diagnostic=True)
            case eng.UsageReported(usage, model):
                self._meter.add(usage, model)
                self.write_line(
                    "subagent.child.usage", {**msgspec.to_builtins(usage), "model": model}, is_diagnostic=True
                )
                self.mark_status(now, at_once=False)
            case eng.ArtifactWritten(path, size):
                self._artifacts[path] = size
                self.write_line("subagent.artifact.written", {"path": path, "bytes": size})
            case _:  # a child's process is the tree's concern, its end the machine's
                pass

    def note_dropped(self, count: int) -> None:
        """Say in the journal that the child reported faster than could be written."""
        self.write_line("subagent.child.dropped", {"count": count}, is_diagnostic=True)

    def next_deadline(self) -> float | None:
        """Return when ``flush`` has something to do at the latest."""
        if self._dirty_since is not None:
            return self._dirty_since + STATUS_COALESCE_S
        return self._activity.next_change

    def flush(self, snapshot: Snapshot, now: float) -> JournalEvent | None:
        """Write what waits. Returns the newest event that reached the file, if any did.

        Raises:
            OSError: The disk refuses. Nothing is lost: flush again.
        """
        self._look_at_activity(snapshot, now)
        if self._dirty_since is not None and (self._must_write_now or now >= self._dirty_since + STATUS_COALESCE_S):
            write_status(self._paths, self.status(snapshot))
            self._dirty_since, self._must_write_now = None, False
        if not self._journal.is_waiting:
            return None
        self._journal.flush()
        newest, self._newest = self._newest, None
        return newest

    def _look_at_activity(self, snapshot: Snapshot, now: float) -> None:
        """Note a change of what there is to say of the run's activity: the only one that time alone brings."""
        found = self._attention_now(snapshot)
        if found == self._attention:
            return
        self._attention = found
        self.mark_status(now, at_once=True)
        if found is not None:
            data = {"activityState": found.state.value, "reason": found.reason.value, "since": self._wall(found.since)}
            self.write_line("subagent.control", data)

    def _attention_now(self, snapshot: Snapshot) -> Attention | None:
        is_working = snapshot.phase is Phase.RUNNING
        return self._activity.look(self._clock.monotonic(), is_working=is_working, is_waiting=snapshot.is_waiting)

    def _wall(self, at: float) -> int:
        """Return a moment of the loop's clock as Unix time."""
        return self._clock.wall_ms() - round((self._clock.monotonic() - at) * 1000)

    def close_output(self) -> None:
        """Write the last line of each of the child's outputs, which had no end of line."""
        for stream, lines in self._outputs.items():
            for line in lines.finish():
                self.write_line(f"subagent.child.{stream}", {"text": line}, is_diagnostic=True)

    def status(self, snapshot: Snapshot) -> RunStatus:
        """Return the status of the running run."""
        wall_ms = self._clock.wall_ms()
        remaining_ms = None if snapshot.remaining_s is None else round(snapshot.remaining_s * 1000)
        is_clock_running = snapshot.phase is Phase.RUNNING and not snapshot.is_waiting
        tool = next(reversed(self._tools.values()), None)
        usage = self._meter.usage
        tokens = None if usage is None else tokens_of(usage)
        attention = self._attention_now(snapshot)
        step_status = "stopped" if snapshot.stopped else "failed" if snapshot.timed_out else "running"
        status = RunStatus(
            run_id=self._spec.run_id,
            session_id=self._spec.session_id,
            state=RunState.RUNNING,
            pid=self._process.pid,
            process=self._process,
            cwd=self._spec.cwd,
            started_at=self._started_at,
            last_update=wall_ms,
            error=snapshot.error,
            reason=snapshot.reason,
            stopped=snapshot.stopped,
            timed_out=snapshot.timed_out,
            activity_state=None if attention is None else attention.state.value,
            activity_reason=None if attention is None else attention.reason.value,
            activity_since=None if attention is None else self._wall(attention.since),
            last_activity_at=self._wall(self._activity.last_at),
            current_tool=SUPERVISOR_TOOL if self._activity.is_supervised else None if tool is None else tool.name,
            current_tool_started_at=None if tool is None else tool.started_at,
            current_path=None if tool is None else tool.path,
            tool_count=self._tool_count,
            turn_count=0 if usage is None else usage.turns,
            total_tokens=tokens,
            total_cost=None if usage is None else usage.cost,
            usage=usage,
            steering=self._steering,
            steps=(
                Step(
                    agent=self._spec.agent.name,
                    status=step_status,
                    label=self._spec.label,
                    started_at=self._started_at,
                    tokens=tokens,
                    model=self._meter.model or None,
                ),
            ),
            timeout_ms=self._spec.timeout_ms,
            deadline_at=wall_ms + remaining_ms if is_clock_running and remaining_ms is not None else None,
            remaining_ms=remaining_ms,
            waiting_for_human_ms=round(snapshot.waited_s * 1000),
            session_file=self._existing_session(),
        )
        return status_of_launch(status, self._spec)

    def end(self, verdict: Verdict, snapshot: Snapshot) -> tuple[RunStatus, RunResult]:
        """Return the last status of the running run, and its result. A text too long for it is in a file then.

        Raises:
            OSError: That file could not be written.
        """
        now = self._clock.wall_ms()
        settled = verdict.settled or eng.Settled()
        output, path, size, digest = self._text(settled)
        state = verdict.state
        structured = settled.structured if state is RunState.COMPLETE else msgspec.UNSET
        saved = self._save(output, path) if state is RunState.COMPLETE else None
        if saved is not None and self._spec.launch is not None and self._spec.launch.output_mode == "file-only":
            output, path = f"The result is in {saved} ({size} bytes).", path or saved
        error = without_surrogates(verdict.error)  # the agent's own words
        status = msgspec.structs.replace(self.status(snapshot), output_file=path or self._existing_output())
        is_success = state is RunState.COMPLETE
        budget = self._spec.usage_budget
        result = RunResult(
            run_id=self._spec.run_id,
            session_id=self._spec.session_id,
            agent=self._spec.agent.name,
            state=state,
            success=is_success,
            exit_code=verdict.exit_code,
            summary=_summary((output or _as_json(structured)) if is_success else error or ""),
            output=output,
            output_path=path or None,
            output_bytes=size,
            output_sha256=digest or None,
            structured=structured,
            tool_budget_state=settled.tool_budget_state,
            saved_output=saved,
            error=error,
            reason=verdict.reason,
            results=(
                ResultItem(
                    agent=self._spec.agent.name,
                    success=is_success,
                    exit_code=settled.exit_code if settled.exit_code is not None else verdict.exit_code,
                    output=_summary(output),
                    error=error,
                ),
            ),
            artifacts=tuple(f"artifacts/{name}" for name in sorted(self._artifacts)[:_MAX_LISTED_ARTIFACTS]),
            started_at=self._started_at,
            ended_at=now,
            duration_ms=max(0, now - self._started_at),
            waiting_for_human_ms=round(snapshot.waited_s * 1000),
            usage=status.usage,
            usage_budget_state=None if budget is None else usage_state(budget, status.usage or Usage()),
            cwd=self._spec.cwd,
            session_file=status.session_file,
            cleanup="proven" if verdict.is_cleanup_proven else "unproven",
            parent_run_id=self._spec.parent_run_id,
        )
        return status, result_of_launch(result, self._spec)

    def _save(self, output: str, whole_file: str) -> str | None:
        """Write the result to the file that the launch names; returns its path where it is there."""
        wanted = None if self._spec.launch is None else self._spec.launch.output_path
        if wanted is None:
            return None
        if self._saved is None:  # an end is computed again where the disk refused it
            self._saved = save_output(wanted, output.encode(), whole_file, started_at=self._started_at)
            if self._saved.problem:
                self.write_line("subagent.output.failed", {"error": self._saved.problem})
        return self._saved.path or None

    def _existing_session(self) -> str | None:
        path = self._paths.session
        return str(path) if path.exists() else None

    def _existing_output(self) -> str | None:
        path = self._paths.output(0)
        return str(path) if path.exists() else None

    def _text(self, settled: eng.Settled) -> tuple[str, str, int, str]:
        """Return the text or its beginning, and file, size and digest of the whole where it is only the beginning."""
        if settled.text_file:
            return settled.text, settled.text_file, settled.text_bytes, settled.text_sha256
        # An agent may return half a surrogate pair, which no file and no message can hold.
        data = settled.text.encode("utf-8", "replace")
        if len(data) <= MAX_RESULT_TEXT_BYTES:
            return data.decode(), "", len(data), ""
        path = result_file(self._paths)
        path.unlink(missing_ok=True)
        whole = BoundedLog(str(path), len(data))
        whole.write(data)
        whole.close()
        if whole.lost_bytes:
            raise OSError(f"{path} took only a part of the result")
        preview = data[:MAX_RESULT_TEXT_BYTES].decode("utf-8", "ignore")
        return preview, str(path), len(data), hashlib.sha256(data).hexdigest()


def _as_json(structured: Any) -> str:
    return "" if structured is msgspec.UNSET else msgspec.json.encode(structured).decode()


class _Lines:
    """Cuts a stream of bytes into lines of text; what is not UTF-8 is replaced, what is too long is cut in pieces."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def take(self, data: bytes) -> list[str]:
        """Return the lines that are whole now."""
        *lines, self._rest = (self._rest + self._decoder.decode(data)).split("\n")
        while len(self._rest) > _MAX_LINE_CHARS:
            lines.append(self._rest[:_MAX_LINE_CHARS])
            self._rest = self._rest[_MAX_LINE_CHARS:]
        return [line[:_MAX_LINE_CHARS].removesuffix("\r") for line in lines]

    def finish(self) -> list[str]:
        """Return what came after the last end of line."""
        rest, self._rest = self._rest + self._decoder.decode(b"", final=True), ""
        return [rest] if rest else []


def result_file(paths: RunPaths) -> Path:
    """Return the file with the whole result where it is too long for ``result.json``."""
    return paths.dir / "result-0.txt"


def _summary(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= _SUMMARY_CHARS else line[: _SUMMARY_CHARS - 1] + "…"
