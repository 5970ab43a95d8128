"""Which message reaches an agent when: the table of mode and phase, and the queue of follow-ups, as transcripts."""

import re
from pathlib import Path

import pytest

from pisub.protocol.limits import MAX_FOLLOW_UPS
from pisub.runs import steering as st
from pisub.runs.steering import AckState, Mode, Phase, SteerMessage, SteerQueue, Way

TABLE = {
    Mode.STEER: (Way.STEER, Way.STEER, Way.STEER, Way.STEER),
    Mode.FOLLOW_UP: (Way.FOLLOW_UP, Way.FOLLOW_UP, Way.FOLLOW_UP, Way.FOLLOW_UP),
    Mode.AUTO: (Way.FOLLOW_UP, Way.STEER, Way.FOLLOW_UP, Way.PLAIN),
}
PHASES = (Phase.TURN, Phase.BETWEEN, Phase.SETTLING, Phase.IDLE)


def message(name: str, mode: Mode = Mode.STEER) -> SteerMessage:
    return SteerMessage(id=name, text=f"text of {name}", mode=mode)


def in_phase(phase: Phase) -> SteerQueue:
    queue = SteerQueue()
    queue.handle(st.TurnBegan())
    match phase:
        case Phase.TURN:
            pass
        case Phase.BETWEEN:
            queue.handle(st.TurnEnded())
        case Phase.IDLE:
            queue.handle(st.TurnEnded())
            queue.handle(st.Waited())
        case Phase.SETTLING:
            queue.handle(st.TurnEnded())
            queue.handle(st.AgentEnded())
    assert queue.phase is phase
    return queue


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("phase", Phase)
def test_the_table_of_mode_and_phase_is_the_contract_s(mode: Mode, phase: Phase) -> None:
    assert st.WAYS[mode, phase] is TABLE[mode][PHASES.index(phase)]


def test_the_table_is_the_one_in_the_documentation() -> None:
    document = (Path(__file__).parents[2] / "docs/agents.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- steering modes -->\n(.*?)\n<!-- end -->", document, re.DOTALL)
    assert found is not None
    assert found[1] == st.markdown_table()


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("phase", Phase)
def test_a_message_is_queued_or_at_hand_as_the_table_says(mode: Mode, phase: Phase) -> None:
    effects = in_phase(phase).handle(st.Offered(message("a", mode)))
    queued = st.Acknowledge("a", AckState.QUEUED, "Queued for after this turn.")
    wakes = [st.Wake()] if phase is Phase.IDLE else []
    expected = [queued, *wakes] if TABLE[mode][PHASES.index(phase)] is Way.FOLLOW_UP else wakes
    assert effects == expected


def handed(effects: list[st.AnySteerEffect]) -> list[str]:
    return [effect.message.id for effect in effects if isinstance(effect, st.Hand)]


def test_a_message_is_delivered_when_the_agent_takes_it_and_not_before() -> None:
    queue = in_phase(Phase.TURN)
    assert queue.handle(st.Offered(message("a"))) == []
    assert queue.handle(st.Polled()) == [
        st.Hand(message("a")),
        st.Acknowledge("a", AckState.DELIVERED, "The agent has it."),
    ]
    assert queue.handle(st.Polled()) == []


def test_a_follow_up_waits_for_the_end_of_a_turn_and_one_is_released_per_turn() -> None:
    queue = in_phase(Phase.TURN)
    for name in "ab":
        queue.handle(st.Offered(message(name, Mode.FOLLOW_UP)))
    assert handed(queue.handle(st.Polled())) == []
    queue.handle(st.TurnEnded())
    assert handed(queue.handle(st.Polled())) == []
    queue.handle(st.TurnBegan())
    assert handed(queue.handle(st.Polled())) == ["a"]
    queue.handle(st.TurnEnded())
    queue.handle(st.TurnBegan())
    assert handed(queue.handle(st.Polled())) == ["b"]


def test_a_follow_up_that_came_between_turns_waits_for_a_whole_turn() -> None:
    queue = in_phase(Phase.BETWEEN)
    queue.handle(st.Offered(message("a", Mode.FOLLOW_UP)))
    queue.handle(st.TurnBegan())
    assert handed(queue.handle(st.Polled())) == []
    queue.handle(st.TurnEnded())
    queue.handle(st.TurnBegan())
    assert handed(queue.handle(st.Polled())) == ["a"]


def test_an_agent_without_turns_gets_one_follow_up_with_each_look() -> None:
    queue = SteerQueue()
    for name in "ab":
        queue.handle(st.Offered(message(name, Mode.FOLLOW_UP)))
    assert [handed(queue.handle(st.Polled())) for _ in range(3)] == [["a"], ["b"], []]


def test_an_agent_that_waits_between_turns_is_given_the_oldest_follow_up() -> None:
    queue = in_phase(Phase.TURN)
    for name in "ab":
        queue.handle(st.Offered(message(name, Mode.FOLLOW_UP)))
    queue.handle(st.TurnEnded())
    assert handed(queue.handle(st.Waited())) == ["a"]


def test_an_agent_that_waits_in_a_turn_is_given_no_follow_up() -> None:
    queue = in_phase(Phase.TURN)
    queue.handle(st.Offered(message("a", Mode.AUTO)))
    assert queue.handle(st.Waited()) == []
    assert queue.handle(st.Offered(message("b"))) == [st.Wake()]


def test_the_follow_up_after_the_last_that_fits_is_refused_and_a_released_one_still_counts() -> None:
    queue = in_phase(Phase.TURN)
    for number in range(MAX_FOLLOW_UPS):
        queue.handle(st.Offered(message(str(number), Mode.FOLLOW_UP)))
    full = st.Acknowledge("late", AckState.FAILED, "Follow-up queue is full (20 messages).")
    assert queue.handle(st.Offered(message("late", Mode.FOLLOW_UP))) == [full]
    queue.handle(st.TurnEnded())
    queue.handle(st.TurnBegan())
    assert queue.handle(st.Offered(message("later", Mode.FOLLOW_UP))) == [
        st.Acknowledge("later", AckState.FAILED, "Follow-up queue is full (20 messages).")
    ]
    assert handed(queue.handle(st.Polled())) == ["0"]
    assert queue.handle(st.Offered(message("latest", Mode.FOLLOW_UP))) == [
        st.Acknowledge("latest", AckState.QUEUED, "Queued for after this turn.")
    ]


def test_at_the_end_queued_and_unread_messages_fail_with_different_reasons_and_later_ones_at_once() -> None:
    queue = in_phase(Phase.TURN)
    queue.handle(st.Offered(message("unread")))
    queue.handle(st.Offered(message("queued", Mode.FOLLOW_UP)))
    assert queue.handle(st.Closed()) == [
        st.Acknowledge("unread", AckState.FAILED, st.NEVER_READ),
        st.Acknowledge("queued", AckState.FAILED, st.NEVER_RELEASED),
    ]
    assert queue.handle(st.Offered(message("late"))) == [st.Acknowledge("late", AckState.FAILED, st.CLOSED)]
    assert queue.handle(st.Polled()) == []
    assert queue.handle(st.Closed()) == []


def test_a_request_that_comes_twice_is_delivered_once() -> None:
    queue = SteerQueue()
    queue.handle(st.Offered(message("a")))
    assert queue.handle(st.Offered(message("a"))) == []
    assert handed(queue.handle(st.Polled())) == ["a"]
    assert queue.handle(st.Offered(message("a"))) == []
