"""Everything that a run's machine can want done, as values. A shell carries them out, in order."""

from __future__ import annotations

from typing import Any

import msgspec

from pisub.engines.base import Settled
from pisub.protocol.runs import RunState


class Verdict(msgspec.Struct, frozen=True):
    """How a run ended: decided once, never changed.

    Attributes:
        state: ``complete``, ``failed``, ``stopped`` or ``paused``.
        reason: Machine-readable cause where the state is not complete.
        error: One or more sentences where the state is not complete.
        exit_code: 0 for complete and paused, else 1 (contract, runs 2.5).
        settled: What the child reported, or None when it never did.
        is_cleanup_proven: Whether the whole process tree was seen gone.
        is_engine_hung: The child's function never returned: only leaving by ``os._exit`` ends it.
    """

    state: RunState
    reason: str | None
    error: str | None
    exit_code: int
    settled: Settled | None
    is_cleanup_proven: bool
    is_engine_hung: bool
    was_stopped: bool
    has_timed_out: bool


class Effect(msgspec.Struct, frozen=True):
    """Base of all effects."""


class StartEngine(Effect, frozen=True):
    """Let the child begin."""


class CancelEngine(Effect, frozen=True):
    """Ask the child to end now."""


class CancelAsks(Effect, frozen=True):
    """Take all open questions back."""

    reason: str


class PassOn(Effect, frozen=True):
    """Ask every run below this one to end likewise. Done again before the end: one may have begun meanwhile.

    ``kind`` is ``stop``, ``timeout`` or ``interrupt``.
    """

    kind: str


class SignalTree(Effect, frozen=True):
    """Send every descendant SIGTERM, or with ``must_die`` SIGKILL, until a pass finds none that is new."""

    must_die: bool


class LookAtTree(Effect, frozen=True):
    """Count the live descendants, and say so by ``TreeSeen``."""


class WriteJournal(Effect, frozen=True):
    """Append one lifecycle line."""

    type: str
    data: dict[str, Any]


class WriteStatus(Effect, frozen=True):
    """The run's state changed: rewrite ``status.json`` at once."""


class Commit(Effect, frozen=True):
    """Write the end, in the order of the record, and leave. The last effect of a run."""

    verdict: Verdict


RunnerEffect = (
    StartEngine | CancelEngine | CancelAsks | PassOn | SignalTree | LookAtTree | WriteJournal | WriteStatus | Commit
)
