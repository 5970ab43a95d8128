"""Any order of messages, turns, looks and ends: every message has one history, and follow-ups keep their order."""

from collections.abc import Sequence

from hypothesis import given, strategies

from pisub.protocol.limits import MAX_FOLLOW_UPS
from pisub.runs import steering as st
from pisub.runs.steering import AckState, Mode, SteerMessage, SteerQueue

HISTORIES = {
    (AckState.DELIVERED,),
    (AckState.FAILED,),
    (AckState.QUEUED, AckState.DELIVERED),
    (AckState.QUEUED, AckState.FAILED),
}
STEPS = strategies.lists(
    strategies.one_of(
        strategies.sampled_from(Mode),
        strategies.sampled_from(
            [st.TurnBegan(), st.TurnEnded(), st.Polled(), st.Waited(), st.WaitEnded(), st.AgentEnded()]
        ),
    ),
    max_size=120,
)


@given(STEPS)
def test_every_message_has_one_of_four_histories_and_is_handed_over_exactly_where_it_is_delivered(
    steps: Sequence[Mode | st.AnySteerEvent],
) -> None:
    queue = SteerQueue()
    offered: list[SteerMessage] = []
    words: dict[str, list[AckState]] = {}
    handed: list[str] = []
    open_turns = 0
    for step in [*steps, st.Closed()]:
        event: st.AnySteerEvent
        if isinstance(step, Mode):
            offered.append(SteerMessage(id=str(len(offered)), text="x", mode=step))
            event = st.Offered(offered[-1])
        else:
            event = step
        released_before = len(handed)
        for effect in queue.handle(event):
            match effect:
                case st.Acknowledge(name, state, _):
                    words.setdefault(name, []).append(state)
                case st.Hand(message):
                    handed.append(message.id)
                case st.Wake():
                    pass
        if isinstance(event, st.TurnBegan):
            open_turns += 1
        if isinstance(event, st.TurnEnded):
            open_turns = max(0, open_turns - 1)
        waiting = sum(states == [AckState.QUEUED] for states in words.values())
        assert waiting <= MAX_FOLLOW_UPS
        # Handed over only where the agent asked for it.
        assert len(handed) == released_before or isinstance(event, st.Polled | st.Waited)
    assert {each.id for each in offered} == set(words)
    assert {tuple(states) for states in words.values()} <= HISTORIES
    assert sorted(handed) == sorted(name for name, states in words.items() if AckState.DELIVERED in states)
    follow_ups = [name for name in handed if words[name][0] is AckState.QUEUED]
    assert follow_ups == sorted(follow_ups, key=int)
    urgent = [name for name in handed if words[name][0] is AckState.DELIVERED]
    assert urgent == sorted(urgent, key=int)


@given(strategies.integers(1, 40), strategies.integers(0, 40))
def test_a_turn_releases_one_follow_up(count: int, turns: int) -> None:
    queue = SteerQueue()
    queue.handle(st.TurnBegan())
    accepted = 0
    for number in range(count):
        message = SteerMessage(id=str(number), text="x", mode=Mode.FOLLOW_UP)
        effect = queue.handle(st.Offered(message))[0]
        accepted += isinstance(effect, st.Acknowledge) and effect.state is AckState.QUEUED
    assert accepted == min(count, MAX_FOLLOW_UPS)
    handed = 0
    for _ in range(turns):
        queue.handle(st.TurnEnded())
        queue.handle(st.TurnBegan())
        found = [effect for effect in queue.handle(st.Polled()) if isinstance(effect, st.Hand)]
        assert len(found) <= 1
        handed += len(found)
    assert handed == min(accepted, turns)
