"""Everything that can happen to a host's queue, and everything that it can want done: two closed unions."""

from __future__ import annotations

import msgspec

from pisub.hosting.dialogs import DialogContext
from pisub.protocol.checkpoint import AskResult, Question
from pisub.record.model import OutcomeKind, QuestionOutcome


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A batch of questions, as the queue needs it. Times are in seconds; None is no limit."""

    ask_id: str
    run_id: str
    session_id: str
    agent: str
    questions: tuple[Question, ...]
    label: str = ""
    depth: int = 0
    #: The first run above it; '' where it is that itself.
    root_run_id: str = ""
    why: str = ""
    asked_at: int = 0
    timeout_s: float | None = None
    question_timeout_s: float | None = None


# Events. ---------------------------------------------------------------------------------------------------------


class AskArrived(msgspec.Struct, frozen=True, kw_only=True):
    """A batch wants answers. Known ``ask_id``: it was asked again, and only ``outcomes`` can be news."""

    ask: Ask
    #: What the record already holds for it.
    outcomes: tuple[QuestionOutcome, ...] = ()


class AskWithdrawn(msgspec.Struct, frozen=True, kw_only=True):
    """The asker took it back, or is gone. Nothing is recorded for it: that is the asker's, or its reconciler's."""

    ask_id: str
    reason: str


class OutcomeSettled(msgspec.Struct, frozen=True, kw_only=True):
    """The record holds this outcome now: ours, or that of whoever was first."""

    outcome: QuestionOutcome


class RecordFailed(msgspec.Struct, frozen=True, kw_only=True):
    """An outcome could not be written. An answer that is not on disk was not given."""

    ask_id: str
    number: int
    message: str


class DialogAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """A dialog ended with a value."""

    dialog: int
    value: object


class DialogDismissed(msgspec.Struct, frozen=True, kw_only=True):
    """A dialog ended without a value: the human will not answer."""

    dialog: int


class DialogFailed(msgspec.Struct, frozen=True, kw_only=True):
    """A dialog's code raised."""

    dialog: int
    message: str


class DialogClosed(msgspec.Struct, frozen=True, kw_only=True):
    """A dialog that was told to close is off the screen."""

    dialog: int


class TimePassed(msgspec.Struct, frozen=True):
    """``next_deadline`` was reached."""


class HostStopped(msgspec.Struct, frozen=True, kw_only=True):
    """This session does not host any more. Its open asks stay open in the record, for the next host."""

    reason: str


Event = (
    AskArrived
    | AskWithdrawn
    | OutcomeSettled
    | RecordFailed
    | DialogAnswered
    | DialogDismissed
    | DialogFailed
    | DialogClosed
    | TimePassed
    | HostStopped
)


# Effects. --------------------------------------------------------------------------------------------------------


class ShowDialog(msgspec.Struct, frozen=True, kw_only=True):
    """Open a dialog. Exactly one of the ``Dialog…`` events answers it."""

    dialog: int
    question: Question
    context: DialogContext


class CloseDialog(msgspec.Struct, frozen=True, kw_only=True):
    """Take the dialog off the screen, telling the human why."""

    dialog: int
    reason: str


class AbandonDialog(msgspec.Struct, frozen=True, kw_only=True):
    """A dialog did not close in its time. The queue goes on without it; somebody should be told."""

    dialog: int


class RecordOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Write an outcome, create-once, and say with ``OutcomeSettled`` what the record holds then."""

    ask_id: str
    run_id: str
    number: int
    kind: OutcomeKind
    value: str | None = None
    reason: str = ""


class EndAsk(msgspec.Struct, frozen=True, kw_only=True):
    """Give the asker its result. Once per arrival; nothing follows for this ask."""

    ask_id: str
    run_id: str
    result: AskResult


class ShowWaiting(msgspec.Struct, frozen=True, kw_only=True):
    """While a dialog is open, another number of batches waits behind it than it was last told."""

    waiting: int


class CallHuman(msgspec.Struct, frozen=True, kw_only=True):
    """A batch needs a human that nobody was called for yet. Once per batch that arrives open."""

    ask: Ask
    #: How many batches are open now, this one among them.
    open_asks: int


class RefuseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer came for a dialog that is not open any more. It went nowhere."""

    dialog: int
    reason: str


Effect = ShowDialog | CloseDialog | AbandonDialog | RecordOutcome | EndAsk | RefuseAnswer | ShowWaiting | CallHuman
