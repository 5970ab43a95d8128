"""Every error that pisub raises, in one tree, grouped by who can do something about it.

Each class has a stable ``code``: the same string on the wire, in ``--json`` and in logs. The message says what is
wrong and what to do next. Bugs are not in this tree: they surface as themselves.
"""

from __future__ import annotations

from typing import ClassVar, Self


class PisubError(Exception):
    """Base of all of pisub's errors.

    Attributes:
        code: Stable identifier. A class has a default; an instance may narrow it.
        message: One or two sentences for a person, the way out included.
        field: The name of the input that is at fault, where there is one.
    """

    code: str = "error"

    def __init__(self, message: str, *, code: str | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        if code is not None:
            self.code = code


# The caller can fix it. ------------------------------------------------------------------------------------------


class UsageError(PisubError):
    """The request cannot be carried out as it was made."""

    code = "invalid_request"


class InvalidArgumentError(UsageError):
    """One named argument, key or field has a value that is not allowed."""

    code = "invalid_argument"


class StructuredOutputError(UsageError):
    """A value does not fit the run's schema. ``problems`` has a line ``path: message`` for each fault, at most 8."""

    code = "structured_output_invalid"

    def __init__(self, message: str, *, problems: tuple[str, ...] = ()) -> None:
        super().__init__(message, field="value")
        self.problems = problems


class InvalidIdError(UsageError):
    """A text that should be an id is not one. Raised before any path is built from it."""

    code = "invalid_id"


class UnknownRunError(UsageError):
    """No run has this id, or none that begins with this prefix."""

    code = "unknown_run"


class AmbiguousIdError(UsageError):
    """A prefix fits several ids. ``candidates`` lists some of them."""

    code = "ambiguous_id"

    def __init__(self, message: str, *, candidates: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.candidates = candidates


class UnknownAgentError(UsageError):
    """No agent has this name."""

    code = "unknown_agent"


class AmbiguousAgentError(UsageError):
    """A name or an alias fits several agents. ``candidates`` are their names."""

    code = "ambiguous_agent"

    def __init__(self, message: str, *, candidates: tuple[str, ...] = ()) -> None:
        super().__init__(message, field="agent")
        self.candidates = candidates


class InvalidAgentError(UsageError):
    """An agent's file cannot be used. The message names the file, the line (counted from 1) and the field."""

    code = "invalid_agent"

    def __init__(self, message: str, *, field: str | None = None, file: str = "", line: int | None = None) -> None:
        super().__init__(message, field=field)
        self.file = file
        self.line = line


class UntrustedProjectError(UsageError):
    """The project's agents run code, and nobody has said that this project may."""

    code = "untrusted_project"


class EnvironmentTooLargeError(UsageError):
    """The environment for a launch exceeds ``limits.MAX_ENVIRONMENT_BYTES``."""

    code = "environment_too_large"


class UnknownQuestionError(UsageError):
    """No open question has this id."""

    code = "unknown_question"


class QuestionClosedError(UsageError):
    """The question already has its one outcome; the message says which."""

    code = "question_closed"


# Somebody on the wire broke the rules. ---------------------------------------------------------------------------


class ProtocolError(PisubError):
    """A frame or body breaks the protocol. Received ones are counted and dropped; sending one is a local bug."""

    code = "protocol_error"


class FrameTooLargeError(ProtocolError):
    """A frame or body is over its bound. Checked by the sender: libzmq drops such a message silently."""

    code = "too_large"


class NestingTooDeepError(ProtocolError):
    """A body nests deeper than ``limits.MAX_BODY_DEPTH``. Checked before decoding, which would recurse."""

    code = "too_deep"


class UnsupportedVersionError(ProtocolError):
    """The two sides share no version of the wire protocol."""

    code = "unsupported_version"


# The broker. -----------------------------------------------------------------------------------------------------


class BrokerError(PisubError):
    """The broker cannot be reached, started or joined."""

    code = "broker_error"


class BrokerUnavailableError(BrokerError):
    """No broker answers, and none could be started. The message has the end of its log."""

    code = "broker_unavailable"


class AlreadyRunningError(BrokerError):
    """Another broker serves this runtime directory."""

    code = "already_running"


class IdentityInUseError(BrokerError):
    """The address wanted belongs to another live process."""

    code = "identity_in_use"


class ClientClosedError(BrokerError):
    """The client was closed, by this program, while or before the operation ran."""

    code = "client_closed"


# What became of a message. ---------------------------------------------------------------------------------------


class DeliveryError(PisubError):
    """A message met no answer. The subclasses differ in whether it is safe to send it again."""

    code = "delivery_error"


class NotDeliveredError(DeliveryError):
    """The message certainly reached nobody. It is safe to send it again."""

    code = "not_delivered"


class OutcomeUnknownError(DeliveryError):
    """The message may have been handled. Look at the record before sending it again."""

    code = "outcome_unknown"


class CallTimeoutError(OutcomeUnknownError):
    """No reply came within the caller's time. The callee may still be at work."""

    code = "call_timeout"


class RemoteError(PisubError):
    """The callee refused or failed; ``code`` and ``message`` are its own."""

    code = "remote_error"


# Somebody may not do this, or not now. ---------------------------------------------------------------------------


class RefusedError(PisubError):
    """A rule, a role or a lock forbids it. Nothing was changed."""

    code = "refused"


class RoleTakenError(RefusedError):
    """Another live process holds the role. ``holder`` is its address."""

    code = "role_taken"

    def __init__(self, message: str, *, holder: str = "") -> None:
        super().__init__(message)
        self.holder = holder


class CapReachedError(RefusedError):
    """There is no room for what was to be started; nothing was. ``code`` says which cap.

    Attributes:
        used: How much of the cap is used.
        limit: The cap.
        path: The first of the items that does not fit, as ``tasks[3]``; of a single run ``task``.
    """

    code = "cap_reached"

    def __init__(self, message: str, *, code: str | None = None, used: int = 0, limit: int = 0, path: str = "") -> None:
        super().__init__(message, code=code)
        self.used = used
        self.limit = limit
        self.path = path


class ToolBudgetError(RefusedError):
    """A tool call was refused: the run's budget of calls is used up. ``tool`` is what was called."""

    code = "tool_budget_exhausted"

    def __init__(self, message: str, *, tool: str = "") -> None:
        super().__init__(message)
        self.tool = tool


class UsageBudgetError(RefusedError):
    """A tool call was refused: what the run's models may use is used up."""

    code = "usage_budget_exhausted"


class StaleGenerationError(RefusedError):
    """The sender speaks for a role that it no longer holds."""

    code = "stale_generation"


class LockBusyError(RefusedError):
    """A lock is held by another live process."""

    code = "lock_busy"


class WaitTimeoutError(RefusedError):
    """What was waited for did not happen in time. Nothing was stopped."""

    code = "wait_timeout"


# The record. -----------------------------------------------------------------------------------------------------


class RecordError(PisubError):
    """The files on disk cannot be used as they are."""

    code = "record_error"


class RecordCorruptError(RecordError):
    """A file of the record exists but does not parse. Never reported as missing."""

    code = "record_corrupt"


class UnsafePathError(RecordError):
    """A directory or file of pisub's is a symlink, another user's, or open to others. Nothing was touched."""

    code = "unsafe_path"


class LaunchError(PisubError):
    """A runner could not be started. The message has the end of its standard error."""

    code = "launch_failed"


class RunFailedError(PisubError):
    """``Run.text()`` of a run that did not complete. ``state`` says how it ended."""

    code = "run_failed"

    def __init__(self, message: str, *, state: str = "failed", run_id: str = "") -> None:
        super().__init__(message)
        self.state = state
        self.run_id = run_id


_WIRE_CLASSES: tuple[type[PisubError], ...] = (
    UsageError,
    InvalidArgumentError,
    InvalidIdError,
    ProtocolError,
    FrameTooLargeError,
    NestingTooDeepError,
    UnsupportedVersionError,
    BrokerError,
    IdentityInUseError,
    NotDeliveredError,
    OutcomeUnknownError,
    CallTimeoutError,
    RefusedError,
    RoleTakenError,
    StaleGenerationError,
)


class WireErrors:
    """The way back from a ``code`` on the wire to the class that a caller can catch."""

    _by_code: ClassVar[dict[str, type[PisubError]]] = {each.code: each for each in _WIRE_CLASSES}

    @classmethod
    def build(cls: type[Self], code: str, message: str, *, field: str | None = None) -> PisubError:
        """Make the error that stands for ``code``; a code nobody here knows becomes a ``RemoteError`` that keeps it."""
        known = cls._by_code.get(code)
        if known is None:
            return RemoteError(message, code=code, field=field)
        error = known(message)
        error.field = field
        return error
