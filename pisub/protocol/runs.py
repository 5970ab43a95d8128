"""Runs on the bus: progress, control nudges, completion. The files are the truth; these make it fast."""

from __future__ import annotations

import enum
from typing import Any

from pisub.protocol.base import Message

ASYNC_STARTED_TOPIC = "subagent:async-started"
ASYNC_COMPLETE_TOPIC = "subagent:async-complete"
PROCESS_TERMINAL_TOPIC = "subagent:process-terminal"
WAIT_ENDED_TOPIC = "pisub:wait-ended"


def progress_topic(run_id: str) -> str:
    """Return the topic on which one run's events are published."""
    return f"pisub:run:{run_id}"


def runner_address(run_id: str) -> str:
    """Return the address of a run's runner."""
    return f"run:{run_id}"


class RunState(enum.StrEnum):
    """Where a run is. ``QUEUED`` is never written: readers say it of a run that was submitted and has not begun."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETE = "complete"
    FAILED = "failed"
    STOPPED = "stopped"
    REJECTED = "rejected"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing more will happen by itself."""
        return self not in (RunState.QUEUED, RunState.RUNNING)


class RunProgress(Message, frozen=True, kw_only=True, tag="pisub:run-progress"):
    """Lines were appended to the run's journal, up to and with ``seq``. Droppable."""

    run_id: str
    seq: int
    #: The newest event, for views that want no file read.
    event: dict[str, Any] = {}


class AsyncStarted(Message, frozen=True, kw_only=True, tag=ASYNC_STARTED_TOPIC):
    """A runner began."""

    run_id: str
    session_id: str
    agent: str
    pid: int
    run_dir: str
    started_at: int
    task: str = "[prompt redacted]"


class AsyncComplete(Message, frozen=True, kw_only=True, tag=ASYNC_COMPLETE_TOPIC):
    """A run ended. The completion's file in the session's outbox is the delivery; this wakes its reader."""

    run_id: str
    session_id: str
    agent: str
    state: RunState
    summary: str = ""
    run_dir: str = ""
    ended_at: int = 0


class ProcessTerminal(Message, frozen=True, kw_only=True, tag=PROCESS_TERMINAL_TOPIC):
    """A runner's process ended, and how."""

    run_id: str
    state: str
    exit_code: int | None = None
    signal: str | None = None


class WaitOver(Message, frozen=True, kw_only=True, tag=WAIT_ENDED_TOPIC):
    """A wait in the background is over, and its host's program is told. For views; nothing acts on it."""

    token: str
    session_id: str
    run_id: str
    #: A run's state, or ``needs-attention``, ``timed-out``, ``could-not-be-reconciled``, ``reconciliation-failed``.
    outcome: str
    text: str = ""


class InboxChanged(Message, frozen=True, kw_only=True, tag="pisub:inbox-changed"):
    """To a runner: read the control inbox now. Carries nothing, so nothing can be forged with it."""

    run_id: str


class InboxRead(Message, frozen=True, kw_only=True, tag="pisub:inbox-read"):
    """A runner's answer: what it took from the inbox, and where it stands."""

    run_id: str
    state: RunState
    is_stopping: bool = False


RunMessage = RunProgress | AsyncStarted | AsyncComplete | ProcessTerminal | WaitOver | InboxChanged | InboxRead
