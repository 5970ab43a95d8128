"""The exit codes: one name each, its meaning, and which code an error or the end of a run gets.

The table in ``--help`` and the one in ``docs/cli.md`` are made from here.
"""

from __future__ import annotations

import enum
from typing import Final

from pisub.errors import (
    BrokerError,
    DeliveryError,
    LaunchError,
    PisubError,
    ProtocolError,
    QuestionClosedError,
    RecordError,
    RefusedError,
    RemoteError,
    RunFailedError,
    UnknownAgentError,
    UnknownQuestionError,
    UnknownRunError,
    UntrustedProjectError,
    UsageError,
    WaitTimeoutError,
)
from pisub.protocol.runs import RunState


class Exit(enum.IntEnum):
    """What a command's exit code says."""

    OK = 0
    FAILED = 1
    USAGE = 2
    STOPPED = 3
    TIMED_OUT = 4
    WAIT_TIMEOUT = 5
    NOT_FOUND = 6
    NOT_FINISHED = 7
    UNTRUSTED = 8
    UNAVAILABLE = 9
    REFUSED = 10
    RECORD = 11
    DECLINED = 12
    NO_HOST = 13
    NEEDS_YOU = 14
    INTERNAL = 70
    HANG_UP = 129
    INTERRUPTED = 130
    BROKEN_PIPE = 141


#: One sentence per code, for ``--help`` and the documentation.
MEANINGS: Final[dict[Exit, str]] = {
    Exit.OK: "done; of a run: it is complete",
    Exit.FAILED: "the run failed; of doctor: a check failed",
    Exit.USAGE: "the command cannot be carried out as it was given",
    Exit.STOPPED: "the run was stopped",
    Exit.TIMED_OUT: "the run reached its own deadline",
    Exit.WAIT_TIMEOUT: "what was waited for did not happen in time; nothing was stopped",
    Exit.NOT_FOUND: "no such run, agent or question",
    Exit.NOT_FINISHED: "the run has no result yet",
    Exit.UNTRUSTED: "the project's agents run code and nobody has trusted them",
    Exit.UNAVAILABLE: "no broker, or a runner that cannot be started",
    Exit.REFUSED: "a rule or an earlier answer forbids it; nothing was changed",
    Exit.RECORD: "files of the record are damaged or unsafe, or cannot be read or written",
    Exit.DECLINED: "of ask: the question was dismissed, or its dialog ran out of time",
    Exit.NO_HOST: "of ask: nobody is there to ask",
    Exit.NEEDS_YOU: "of wait --attention: a run needs somebody; it goes on",
    Exit.INTERNAL: "a bug of pisub's: PISUB_DEBUG=1 shows the traceback",
    Exit.HANG_UP: "the terminal was closed; of run and resume: SIGHUP, and the run was stopped",
    Exit.INTERRUPTED: "Ctrl-C",
    Exit.BROKEN_PIPE: "whoever read the output went away",
}

#: First match decides, so a subclass stands before its base.
_BY_ERROR: Final[tuple[tuple[type[PisubError], Exit], ...]] = (
    (UntrustedProjectError, Exit.UNTRUSTED),
    (UnknownRunError, Exit.NOT_FOUND),
    (UnknownAgentError, Exit.NOT_FOUND),
    (UnknownQuestionError, Exit.NOT_FOUND),
    (QuestionClosedError, Exit.REFUSED),
    (UsageError, Exit.USAGE),
    (WaitTimeoutError, Exit.WAIT_TIMEOUT),
    (RefusedError, Exit.REFUSED),
    (BrokerError, Exit.UNAVAILABLE),
    (DeliveryError, Exit.UNAVAILABLE),
    (ProtocolError, Exit.UNAVAILABLE),
    (RemoteError, Exit.UNAVAILABLE),
    (LaunchError, Exit.UNAVAILABLE),
    (RecordError, Exit.RECORD),
    (RunFailedError, Exit.FAILED),
)

#: ``reason`` of a run that its own deadline ended.
TIMEOUT_REASON = "timeout"


def exit_for_error(error: PisubError) -> Exit:
    """Return the code for an error that ends a command."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), Exit.FAILED)


def exit_for_run(state: RunState, *, reason: str | None) -> Exit:
    """Return the code that follows a run."""
    match state:
        case RunState.COMPLETE:
            return Exit.OK
        case RunState.STOPPED:
            return Exit.STOPPED
        case RunState.FAILED | RunState.REJECTED:
            return Exit.TIMED_OUT if reason == TIMEOUT_REASON else Exit.FAILED
        case RunState.QUEUED | RunState.RUNNING | RunState.PAUSED:
            return Exit.NOT_FINISHED


def name_of(code: Exit) -> str:
    """Return the code's name as it is written for people: ``wait-timeout``."""
    return code.name.lower().replace("_", "-")


def help_table() -> str:
    """Return the codes as an indented text table for ``--help``."""
    lines = [f"  {code.value:>3}  {name_of(code):<13} {meaning}" for code, meaning in MEANINGS.items()]
    return "\n".join(["exit codes:", *lines])


def markdown_table() -> str:
    """Return the codes as the table that stands in ``docs/cli.md``."""
    rows = [f"| {code.value} | `{name_of(code)}` | {meaning} |" for code, meaning in MEANINGS.items()]
    return "\n".join(["| code | name | meaning |", "|---:|---|---|", *rows])
