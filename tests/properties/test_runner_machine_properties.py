"""Whatever happens to a run, in any order: it ends once, with one verdict, and precedence holds."""

from hypothesis import given
from hypothesis import strategies as st

from pisub.engines.base import Settled
from pisub.protocol.runs import RunState
from runner import effects as fx
from runner import events as ev
from runner.machine import Machine, Phase

settled = st.builds(
    Settled,
    text=st.sampled_from(["", "text"]),
    error=st.none() | st.just("broken"),
    was_cancelled=st.booleans(),
)
events = st.one_of(
    st.just(ev.Begun()),
    st.builds(ev.EndRequested, cause=st.sampled_from(ev.Cause), reason=st.just("r"), text=st.just("t")),
    st.builds(ev.EngineSettled, settled=settled, has_artifacts=st.booleans()),
    st.builds(ev.TreeSeen, remaining=st.integers(0, 2)),
    st.just(ev.AskBegan()),
    st.just(ev.AskEnded()),
    st.just(ev.Tick()),
)
histories = st.lists(st.tuples(events, st.floats(0, 3)), max_size=60)


@given(histories)
def test_a_run_ends_at_most_once_and_nothing_happens_after_it(history: list[tuple[ev.RunnerEvent, float]]) -> None:
    machine = Machine(0.0, timeout_s=20.0, stop_grace_s=3.0)
    now = 0.0
    commits: list[fx.Verdict] = []
    was_begun = is_engine_started = False
    for event, gap in history:
        now += gap
        was_ended = machine.phase is Phase.ENDED
        effects = machine.handle(event, now)
        assert not (was_ended and effects)
        was_begun = was_begun or isinstance(event, ev.Begun)
        is_engine_started = is_engine_started or fx.StartEngine() in effects
        commits += [effect.verdict for effect in effects if isinstance(effect, fx.Commit)]
        assert effects[:-1].count(fx.StartEngine()) == 0
    assert len(commits) <= 1
    if commits:
        assert was_begun
        (verdict,) = commits
        assert verdict.was_stopped == (verdict.state is RunState.STOPPED)
        if verdict.state is RunState.COMPLETE:
            assert is_engine_started
            assert verdict.settled is not None
            assert verdict.settled.error is None


@given(histories)
def test_a_begun_run_always_comes_to_its_end(history: list[tuple[ev.RunnerEvent, float]]) -> None:
    machine = Machine(0.0, timeout_s=20.0, stop_grace_s=3.0)
    now = 0.0
    for event, gap in [(ev.Begun(), 0.0), *history]:
        now += gap
        machine.handle(event, now)
    machine.handle(ev.EndRequested(ev.Cause.STOP, "stop", "Stop."), now)
    for _ in range(2_000):
        if machine.phase is Phase.ENDED:
            return
        deadline = machine.next_deadline()
        assert deadline is not None
        now = max(now, deadline)
        effects = machine.handle(ev.Tick(), now)
        while fx.LookAtTree() in effects:  # a tree that nothing can end
            effects = machine.handle(ev.TreeSeen(1), now)
    raise AssertionError("the run never ended")
