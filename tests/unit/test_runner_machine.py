"""The life of a run, as transcripts: an event, what is done for it, and where the run is then."""

import pytest

from pisub.engines.base import Settled
from pisub.protocol.runs import RunState
from runner import effects as fx
from runner import events as ev
from runner.machine import Machine, Phase

STOP = ev.EndRequested(ev.Cause.STOP, "stop", "Stopped.")
TIMEOUT = ev.EndRequested(ev.Cause.TIMEOUT, "timeout", "Timed out.")
INTERRUPT = ev.EndRequested(ev.Cause.INTERRUPT, "interrupt", "Interrupted.")
DONE = ev.EngineSettled(Settled(text="done"))
CANCELLED = ev.EngineSettled(Settled(was_cancelled=True))
BROKEN = ev.EngineSettled(Settled(error="ValueError: no", reason="agent-error"))
EMPTY = ev.TreeSeen(0)


def begun(timeout_s: float | None = 10.0) -> Machine:
    machine = Machine(0.0, timeout_s=timeout_s, stop_grace_s=3.0)
    assert machine.handle(ev.Begun(), 0.0) == [fx.WriteStatus(), fx.StartEngine()]
    return machine


def verdict_of(effects: list[fx.RunnerEffect]) -> fx.Verdict:
    assert isinstance(effects[-1], fx.Commit)
    return effects[-1].verdict


def test_a_run_that_completes() -> None:
    machine = begun()
    assert machine.handle(DONE, 1.0) == [fx.CancelAsks("The run is over."), fx.LookAtTree()]
    assert machine.phase is Phase.DRAINING
    effects = machine.handle(EMPTY, 1.0)
    assert effects[0] == fx.WriteJournal("subagent.step.completed", {"index": 0, "exitCode": 0})
    assert verdict_of(effects) == fx.Verdict(
        state=RunState.COMPLETE,
        reason=None,
        error=None,
        exit_code=0,
        settled=Settled(text="done"),
        is_cleanup_proven=True,
        is_engine_hung=False,
        was_stopped=False,
        has_timed_out=False,
    )
    assert machine.phase is Phase.ENDED


def test_a_stop_asks_the_child_first_and_stays_running_until_the_tree_is_gone() -> None:
    machine = begun()
    assert machine.handle(STOP, 1.0) == [
        fx.WriteJournal("subagent.run.stopped", {"reason": "stop", "message": "Stopped."}),
        fx.WriteStatus(),
        fx.CancelEngine(),
        fx.CancelAsks("Stopped."),
        fx.PassOn("stop"),
    ]
    assert (machine.phase, machine.snapshot().stopped) == (Phase.STOPPING, True)
    assert machine.next_deadline() == 4.0
    assert machine.handle(ev.Tick(), 3.9) == []
    assert machine.handle(ev.Tick(), 4.0) == [fx.CancelAsks("The run is over."), fx.LookAtTree()]
    assert machine.handle(ev.TreeSeen(2), 4.0) == [fx.SignalTree(must_die=False)]
    assert machine.handle(ev.Tick(), 4.5) == [fx.LookAtTree()]
    assert machine.handle(ev.TreeSeen(1), 5.0) == [fx.SignalTree(must_die=True)]
    assert machine.handle(EMPTY, 5.1) == []
    verdict = verdict_of(machine.handle(CANCELLED, 5.2))
    assert (verdict.state, verdict.was_stopped, verdict.is_engine_hung) == (RunState.STOPPED, True, False)


def test_a_child_that_never_returns_is_left_behind_once_its_tree_is_gone() -> None:
    machine = begun()
    machine.handle(STOP, 1.0)
    machine.handle(ev.Tick(), 4.0)
    assert machine.handle(EMPTY, 4.0) == []
    deadline = machine.next_deadline()
    assert deadline == 4.5
    verdict = verdict_of(machine.handle(ev.Tick(), 4.5))
    assert (verdict.state, verdict.is_engine_hung, verdict.settled) == (RunState.STOPPED, True, None)


def test_a_tree_that_cannot_be_ended_is_said_to_be_there() -> None:
    machine = begun()
    machine.handle(DONE, 1.0)
    machine.handle(ev.TreeSeen(1), 2.0)
    verdict = verdict_of(machine.handle(ev.TreeSeen(1), 3.0))
    assert (verdict.state, verdict.is_cleanup_proven) == (RunState.COMPLETE, False)
    assert verdict.error == "Some of its processes could not be ended: cleanup unproven."


def test_a_stop_before_the_start_ends_without_a_child() -> None:
    machine = Machine(0.0, timeout_s=None, stop_grace_s=3.0)
    assert machine.handle(STOP, 0.0) == []
    effects = machine.handle(ev.Begun(), 0.1)
    assert fx.StartEngine() not in effects
    assert verdict_of(machine.handle(EMPTY, 0.1)).state is RunState.STOPPED


@pytest.mark.parametrize(
    ("events", "state", "reason"),
    [
        ([STOP, BROKEN], RunState.STOPPED, "stop"),
        ([BROKEN, STOP], RunState.STOPPED, "stop"),
        ([DONE, STOP], RunState.STOPPED, "stop"),
        ([INTERRUPT, STOP, CANCELLED], RunState.STOPPED, "stop"),
        ([STOP, INTERRUPT, CANCELLED], RunState.STOPPED, "stop"),
        ([STOP, TIMEOUT, CANCELLED], RunState.STOPPED, "stop"),
        ([TIMEOUT, STOP, CANCELLED], RunState.FAILED, "timeout"),
        ([TIMEOUT, INTERRUPT, CANCELLED], RunState.FAILED, "timeout"),
        ([INTERRUPT, CANCELLED], RunState.PAUSED, "interrupt"),
        ([INTERRUPT, DONE], RunState.PAUSED, "interrupt"),
        ([INTERRUPT, BROKEN], RunState.FAILED, "agent-error"),
        ([BROKEN], RunState.FAILED, "agent-error"),
        ([CANCELLED], RunState.FAILED, "agent-cancelled"),
        ([ev.EngineSettled(Settled(text=" \n"))], RunState.FAILED, "no-output"),
        ([ev.EngineSettled(Settled(text=" \n"), has_artifacts=True)], RunState.COMPLETE, None),
        ([DONE], RunState.COMPLETE, None),
    ],
)
def test_the_precedence_of_ends(events: list[ev.RunnerEvent], state: RunState, reason: str | None) -> None:
    machine = begun()
    for event in events:
        machine.handle(event, 1.0)
    verdict = verdict_of(machine.handle(EMPTY, 1.0))
    assert (verdict.state, verdict.reason) == (state, reason)
    assert verdict.exit_code == (0 if state in (RunState.COMPLETE, RunState.PAUSED) else 1)


def test_the_deadline_counts_work_and_not_the_wait_for_a_human() -> None:
    machine = begun(timeout_s=2.0)
    assert machine.next_deadline() == 1.0
    machine.handle(ev.Tick(), 1.0)
    assert machine.handle(ev.AskBegan(), 1.5) == [fx.WriteStatus()]
    for second in range(2, 100):
        assert machine.handle(ev.Tick(), float(second)) == []
    snapshot = machine.snapshot()
    assert (snapshot.is_waiting, snapshot.remaining_s, snapshot.waited_s) == (True, 0.5, 97.5)
    machine.handle(ev.AskEnded(), 99.0)
    assert machine.next_deadline() == 99.5
    effects = machine.handle(ev.Tick(), 99.5)
    assert fx.CancelEngine() in effects
    assert machine.snapshot().timed_out


def test_a_machine_that_slept_has_not_worked() -> None:
    machine = begun(timeout_s=10.0)
    assert machine.handle(ev.Tick(), 3600.0) == []
    assert machine.snapshot().remaining_s == 8.0
