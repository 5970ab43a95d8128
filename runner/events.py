"""Everything that can happen to a run, as values. The machine knows no other input.

Must not know sockets, processes, files or clocks: a shell turns those into these.
"""

from __future__ import annotations

import enum

import msgspec

from pisub.engines.base import Settled


class Cause(enum.Enum):
    """Why a run is to end before its child has ended by itself, in the order of precedence."""

    STOP = "stop"
    TIMEOUT = "timeout"
    INTERRUPT = "interrupt"


class Event(msgspec.Struct, frozen=True):
    """Base of all events."""


class Begun(Event, frozen=True):
    """The start is claimed and the record can be written. Requests that were there before came first."""


class EndRequested(Event, frozen=True):
    """Somebody wants the run to end: a control file, a signal, the death of the process that it is attached to.

    Attributes:
        cause: Which of the three.
        reason: Machine-readable, for the result: ``stop``, ``host-gone``, ``signal``, ``timeout``, ``interrupt``.
        text: One sentence for a person.
    """

    cause: Cause
    reason: str
    text: str


class EngineSettled(Event, frozen=True):
    """The child ended. ``has_artifacts`` says whether it left files: then an empty text is no silence."""

    settled: Settled
    has_artifacts: bool = False


class TreeSeen(Event, frozen=True):
    """A look at the process tree: how many live descendants are left."""

    remaining: int


class AskBegan(Event, frozen=True):
    """A human is waited for: the run's own question, or those of all the runs that it waits for."""


class AskEnded(Event, frozen=True):
    """One wait for a human is over."""


class Tick(Event, frozen=True):
    """Time passed."""


RunnerEvent = Begun | EndRequested | EngineSettled | TreeSeen | AskBegan | AskEnded | Tick
