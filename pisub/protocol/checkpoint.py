"""Asking the human: a batch of questions from a child, one result back.

Topics of the seeds: ``checkpoint-bridge:request`` and ``checkpoint-bridge:response``.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from pisub.protocol.base import Message, Part

REQUEST_TOPIC = "checkpoint-bridge:request"
RESPONSE_TOPIC = "checkpoint-bridge:response"
HOST_READY_TOPIC = "checkpoint-bridge:host-ready"
HOST_ROLE = "host"
#: How the address of a run's process begins that asks by its runner; its pid follows, which the broker checks.
CHILD_PREFIX = "child:"


class AskStatus(enum.StrEnum):
    """How an ask ended. Only ``OK`` has an answer to every question; no answer is never an answer."""

    OK = "ok"
    TIMEOUT_OR_CANCELLED = "timeout-or-cancelled"  # a dialog was dismissed, or ran out of time
    TIMEOUT = "timeout"  # the call's own time ran out
    CANCELLED = "cancelled"  # the asker took it back
    NO_HOST = "no-host"  # nobody is there to ask
    ERROR = "error"  # the host's dialog failed


class Question(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One question to the human: with ``options`` a choice among them, without a free text.

    Attributes:
        text: What is asked; 1 to 8,000 characters.
        options: 2 to 64 distinct choices of at most 500 characters each, or none for free text.
        placeholder: A hint shown in an empty text field. Never taken as an answer.
    """

    text: str
    options: Sequence[str] = ()
    placeholder: str = ""

    def __post_init__(self) -> None:
        """Keep the options as a tuple, whatever sequence they came in: a question is a value."""
        if not isinstance(self.options, (tuple, str)):
            msgspec.structs.force_setattr(self, "options", tuple(self.options))


class Answer(Part, frozen=True, kw_only=True):
    """One answer, and where it came from."""

    value: str
    #: What gave it: the address of a host, ``cli``, ``library``.
    by: str
    #: Unix time in milliseconds.
    at: int


class AskResult(Message, frozen=True, kw_only=True, tag=RESPONSE_TOPIC):
    """What became of an ask. ``answers`` has one entry per question, in order; null where there is no answer."""

    may_be_large: ClassVar[bool] = True  # 32 answers of 32,000 characters

    status: AskStatus
    answers: tuple[Answer | None, ...] = ()
    #: One sentence for a person where ``status`` is not ok.
    reason: str = ""
    ask_id: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether every question has an answer."""
        return self.status is AskStatus.OK

    @property
    def values(self) -> tuple[str | None, ...]:
        """The answers' texts, in the questions' order; None where there is none."""
        return tuple(None if answer is None else answer.value for answer in self.answers)

    def __getitem__(self, index: int) -> str | None:
        """Return the text of one answer, counted from 0; None where there is none."""
        return self.values[index]

    def __len__(self) -> int:
        """Return the number of questions."""
        return len(self.answers)


class AskRequest(Message, frozen=True, kw_only=True, tag=REQUEST_TOPIC):
    """A child's batch of questions, as the host gets it. The same batch lies in ``asks/<askId>/ask.json``."""

    may_be_large: ClassVar[bool] = True  # 32 questions of 8,000 characters, with 64 options of 500 each

    ask_id: str
    run_id: str
    agent: str
    questions: tuple[Question, ...]
    depth: int = 0
    label: str = ""
    why: str = ""
    #: Unix time in milliseconds at which the child asked.
    asked_at: int = 0
    #: Time for the whole call from its first dialog, and for one dialog; null is no limit.
    timeout_ms: int | None = None
    question_timeout_ms: int | None = None


class ChildAsk(Message, frozen=True, kw_only=True, tag="checkpoint-bridge:child-ask"):
    """A batch of questions from a process that a run started, to that run's runner, which asks for it."""

    may_be_large: ClassVar[bool] = True  # as ``AskRequest``

    questions: tuple[Question, ...]
    why: str = ""
    #: How long to wait in all, from now on, in milliseconds; null is no limit beyond the two below.
    wait_ms: int | None = None
    #: How long the whole ask may take from its first dialog; absent is as the run's other asks, null is for ever.
    timeout_ms: int | UnsetType | None = UNSET
    #: How long one dialog may stay open; likewise.
    question_timeout_ms: int | UnsetType | None = UNSET


class AskCancelled(Message, frozen=True, kw_only=True, tag="checkpoint-bridge:cancel"):
    """The asker takes an ask back, or it ended elsewhere: its dialog closes and the queue moves."""

    ask_id: str
    reason: str


class AnswerPosted(Message, frozen=True, kw_only=True, tag="checkpoint-bridge:answered"):
    """Somebody wrote an answer file. A nudge to the host and the runner: the file decides."""

    ask_id: str
    run_id: str
    #: Which question, counted from 1; 0 for the whole ask.
    number: int = 0


class HostReady(Message, frozen=True, kw_only=True, tag="checkpoint-bridge:host-ready"):
    """A host took the role of its session: runners with open asks call it again. Topic ``HOST_READY_TOPIC``."""

    session_id: str


CheckpointMessage = HostReady | AskRequest | AskResult | ChildAsk | AskCancelled | AnswerPosted
