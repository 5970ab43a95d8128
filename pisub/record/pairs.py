"""What the three files of an end say together: status, pending result, result.

The one table that readers and reconciliation go by. A commit writes pending, status, result, and removes pending, so
a kill leaves one of few combinations; any other is damage, and is read by the strongest file that is there.
"""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import Final

import msgspec


class StatusFile(enum.Enum):
    """What ``status.json`` says."""

    ABSENT = "absent"
    RUNNING = "running"
    TERMINAL = "terminal"


class Verdict(enum.Enum):
    """Which file decides the state of the run."""

    #: No runner has written yet: queued, or never started.
    NOT_BEGUN = "not-begun"
    #: The status: the run goes on, if its runner lives.
    RUNNING = "running"
    #: Running while the runner holds the lock, for it is about to end it; else the pending result.
    RUNNING_OR_PENDING = "running-or-pending"
    PENDING = "pending"
    RESULT = "result"
    #: A terminal status without any result.
    STATUS = "status"


class Reading(msgspec.Struct, frozen=True):
    """How one combination is read.

    Attributes:
        verdict: Which file decides.
        is_allowed: Whether a writer can leave it so; else a reader looks again, and reconciliation repairs it.
        is_committed: Whether the commit has nothing left to do to these files.
    """

    verdict: Verdict
    is_allowed: bool = True
    is_committed: bool = False


Files = tuple[StatusFile, bool, bool]

#: (status, pending exists, result exists) → how it is read.
READINGS: Final = MappingProxyType[Files, Reading](
    {
        (StatusFile.ABSENT, False, False): Reading(Verdict.NOT_BEGUN),
        # Only the end of a run that never started begins without a status, and no runner writes it.
        (StatusFile.ABSENT, True, False): Reading(Verdict.PENDING),
        (StatusFile.RUNNING, False, False): Reading(Verdict.RUNNING),
        (StatusFile.RUNNING, True, False): Reading(Verdict.RUNNING_OR_PENDING),
        (StatusFile.TERMINAL, True, False): Reading(Verdict.PENDING),
        (StatusFile.TERMINAL, True, True): Reading(Verdict.RESULT),
        (StatusFile.TERMINAL, False, True): Reading(Verdict.RESULT, is_committed=True),
        # Not allowed: a file was lost, or removed by hand.
        (StatusFile.ABSENT, False, True): Reading(Verdict.RESULT, is_allowed=False),
        (StatusFile.ABSENT, True, True): Reading(Verdict.RESULT, is_allowed=False),
        (StatusFile.RUNNING, False, True): Reading(Verdict.RESULT, is_allowed=False),
        (StatusFile.RUNNING, True, True): Reading(Verdict.RESULT, is_allowed=False),
        (StatusFile.TERMINAL, False, False): Reading(Verdict.STATUS, is_allowed=False),
    }
)
