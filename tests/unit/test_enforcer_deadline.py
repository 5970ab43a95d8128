"""The work time of a run, counted from outside."""

from __future__ import annotations

import msgspec
import pytest

from pisub.process import ProcessIdentity
from pisub.protocol.runs import RunState
from pisub.record.model import RunStatus
from runner.enforcer import LATE_S, Deadline

STATUS = RunStatus(
    run_id="r",
    session_id="s",
    state=RunState.RUNNING,
    pid=1,
    process=ProcessIdentity(pid=1),
    cwd="/",
    started_at=1_000,
    last_update=1_000,
    timeout_ms=10_000,
    remaining_ms=10_000,
    deadline_at=11_000,
)


def expiry(deadline: Deadline, status: RunStatus, *, start: float, is_stopped: bool = False) -> float | None:
    """Return how long after ``start`` the time is over, looking every five seconds; None for not within an hour."""
    for step in range(1, 720):
        if deadline.look(status, start + 5.0 * step, is_stopped=is_stopped):
            return 5.0 * step
    return None


def test_the_time_is_over_when_what_was_left_and_some_more_has_passed() -> None:
    deadline = Deadline(0.0)
    assert not deadline.look(STATUS, 0.0, is_stopped=False)
    assert expiry(deadline, STATUS, start=0.0) == 15.0  # the first look after 10 s and LATE_S
    assert 10 < 10 + LATE_S <= 15


def test_a_newer_status_is_believed() -> None:
    deadline = Deadline(0.0)
    deadline.look(STATUS, 0.0, is_stopped=False)
    deadline.look(STATUS, 5.0, is_stopped=False)
    newer = msgspec.structs.replace(STATUS, last_update=6_000, remaining_ms=9_000)
    assert not deadline.look(newer, 10.0, is_stopped=False)
    assert expiry(deadline, newer, start=10.0) == 15.0


@pytest.mark.parametrize("change", [{"deadline_at": None}, {"remaining_ms": None}])
def test_nothing_is_counted_while_it_waits_for_a_human(change: dict[str, None]) -> None:
    assert expiry(Deadline(0.0), msgspec.structs.replace(STATUS, **change), start=0.0) is None


def test_nothing_is_counted_while_it_is_suspended_and_little_while_nobody_looked() -> None:
    deadline = Deadline(0.0)
    deadline.look(STATUS, 0.0, is_stopped=False)
    assert expiry(deadline, STATUS, start=0.0, is_stopped=True) is None
    slept = Deadline(0.0)
    slept.look(STATUS, 0.0, is_stopped=False)
    assert not slept.look(STATUS, 100_000.0, is_stopped=False)
