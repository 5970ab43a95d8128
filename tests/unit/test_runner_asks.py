"""One ask, as transcripts: what is heard, and what is done for it."""

from pisub.protocol.checkpoint import Answer, AskResult, AskStatus
from pisub.record.model import OutcomeKind, QuestionOutcome
from pisub.runs.spec import OnNoHost
from runner import asks
from runner.asks import AskMachine, compute_result


def outcome(number: int, kind: OutcomeKind = OutcomeKind.ANSWERED, value: str = "yes") -> QuestionOutcome:
    answer = Answer(value=value, by="test", at=1) if kind is OutcomeKind.ANSWERED else None
    return QuestionOutcome(ask_id="ask", number=number, kind=kind, answer=answer, reason=kind.value, at=1)


def opened(on_no_host: OnNoHost = OnNoHost.FAIL, count: int = 2) -> AskMachine:
    machine = AskMachine(count, on_no_host)
    assert machine.handle(asks.Opened(), 0.0) == [asks.CallHost()]
    return machine


NO_HOST = asks.Finish(
    AskStatus.NO_HOST,
    "No host serves this session: nobody can be asked.",
    OutcomeKind.CANCELLED,
    must_tell_host=False,
)


def test_the_host_answers_all() -> None:
    machine = opened()
    result = AskResult(status=AskStatus.OK, answers=(Answer(value="a", by="h", at=1), Answer(value="b", by="h", at=1)))
    assert machine.handle(asks.HostReplied(result), 1.0) == [asks.SaveAnswers(result)]
    assert machine.handle(asks.OutcomesRead({1: outcome(1), 2: outcome(2)}), 1.0) == [
        asks.Finish(AskStatus.OK, "", OutcomeKind.CANCELLED, must_tell_host=False)
    ]
    assert machine.is_finished
    assert machine.handle(asks.TakenBack("late"), 2.0) == []


def test_a_host_that_says_ok_without_all_answers_is_not_believed() -> None:
    machine = opened()
    machine.handle(asks.HostReplied(AskResult(status=AskStatus.OK)), 1.0)
    assert machine.handle(asks.OutcomesRead({1: outcome(1)}), 1.0) == [
        asks.Finish(AskStatus.ERROR, "The host said ok without an answer to every question.", OutcomeKind.FAILED, False)
    ]


def test_another_client_answers_while_the_host_shows_the_dialog() -> None:
    machine = opened()
    assert machine.handle(asks.OutcomesRead({1: outcome(1)}), 1.0) == []
    assert machine.handle(asks.OutcomesRead({1: outcome(1), 2: outcome(2)}), 2.0) == [
        asks.Finish(AskStatus.OK, "", OutcomeKind.CANCELLED, must_tell_host=True)
    ]


def test_one_declined_question_ends_the_batch() -> None:
    machine = opened()
    assert machine.handle(asks.OutcomesRead({1: outcome(1, OutcomeKind.DECLINED)}), 1.0) == [
        asks.Finish(AskStatus.TIMEOUT_OR_CANCELLED, "declined", OutcomeKind.CANCELLED, must_tell_host=True)
    ]


def test_with_no_host_at_all_it_ends_at_once() -> None:
    machine = opened()
    assert machine.handle(asks.HostUnreached(), 0.1) == [asks.FindHost()]
    assert machine.handle(asks.RoleFound(is_held=False), 0.2) == [NO_HOST]


def test_a_host_that_died_a_moment_ago_gets_its_grace_and_the_next_one_is_called() -> None:
    machine = opened()
    machine.handle(asks.HostUnreached(), 0.1)
    assert machine.handle(asks.RoleFound(is_held=False, vacated_s_ago=4.0), 1.0) == []
    assert machine.next_deadline() == 5.0
    assert machine.handle(asks.HostAppeared(), 3.0) == [asks.CallHost()]
    machine.handle(asks.HostUnreached(), 4.0)
    machine.handle(asks.RoleFound(is_held=False, vacated_s_ago=0.0), 4.0)
    assert machine.handle(asks.AskTick(), 13.9) == [asks.ReadOutcomes()]
    assert machine.handle(asks.AskTick(), 14.0) == [NO_HOST]


def test_a_host_that_appears_while_the_role_is_looked_up_is_called_and_what_was_looked_up_is_stale() -> None:
    machine = opened()
    assert machine.handle(asks.HostUnreached(), 0.1) == [asks.FindHost()]
    assert machine.handle(asks.HostAppeared(), 0.2) == [asks.CallHost()]
    assert machine.handle(asks.RoleFound(is_held=False, vacated_s_ago=0.0), 0.3) == []
    assert machine.handle(asks.AskTick(), 11.0) == [asks.ReadOutcomes()]
    assert machine.handle(asks.AskTick(), 21.0) == [asks.ReadOutcomes()]


def test_waiting_for_whoever_comes_never_ends_by_itself_and_calls_again_now_and_then() -> None:
    machine = opened(OnNoHost.WAIT)
    machine.handle(asks.HostUnreached(), 0.1)
    assert machine.handle(asks.RoleFound(is_held=False), 0.2) == []
    assert machine.next_deadline() == 5.0
    assert machine.handle(asks.AskTick(), 5.0) == [asks.ReadOutcomes(), asks.CallHost()]
    assert machine.handle(asks.AskTick(), 10.0) == [asks.ReadOutcomes()]


def test_a_lost_broker_is_waited_for_and_then_there_is_no_host() -> None:
    machine = opened()
    assert machine.handle(asks.BrokerLost(), 1.0) == []
    assert machine.handle(asks.BrokerLost(), 9.0) == []
    assert machine.handle(asks.AskTick(), 11.0) == [NO_HOST]


def test_a_host_that_was_missed_is_called_again_after_a_moment() -> None:
    machine = opened()
    machine.handle(asks.HostUnreached(), 1.0)
    assert machine.handle(asks.RoleFound(is_held=True), 1.0) == []
    assert machine.handle(asks.AskTick(), 1.1) == []
    assert machine.handle(asks.AskTick(), 1.2) == [asks.CallHost()]


def test_the_host_s_own_failure_is_an_error() -> None:
    machine = opened()
    assert machine.handle(asks.HostFailed("its dialog raised"), 1.0) == [asks.ReadOutcomes()]
    assert machine.handle(asks.OutcomesRead({}), 1.0) == [
        asks.Finish(AskStatus.ERROR, "its dialog raised", OutcomeKind.FAILED, must_tell_host=False)
    ]


def test_an_ask_taken_back_is_cancelled_and_its_host_told() -> None:
    assert opened().handle(asks.TakenBack("stopped"), 1.0) == [
        asks.Finish(AskStatus.CANCELLED, "stopped", OutcomeKind.CANCELLED, must_tell_host=True)
    ]


def test_files_decide_the_result() -> None:
    both = {1: outcome(1, value="a"), 2: outcome(2, value="b")}
    result = compute_result("ask", 2, both, status=AskStatus.TIMEOUT, reason="too late")
    assert (result.status, result.values, result.reason) == (AskStatus.OK, ("a", "b"), "")
    half = {1: outcome(1, value="a"), 2: outcome(2, OutcomeKind.EXPIRED)}
    result = compute_result("ask", 2, half, status=AskStatus.TIMEOUT, reason="too late")
    assert (result.status, result.values, result.reason) == (AskStatus.TIMEOUT, ("a", None), "too late")
    result = compute_result("ask", 2, half, status=AskStatus.OK, reason="")
    assert result.status is AskStatus.TIMEOUT_OR_CANCELLED
