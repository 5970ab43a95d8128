"""The nursery's decisions: when it leaves, whom it holds, whom it stops reading."""

from pisub.process import ProcessIdentity
from runner.nursery.core import ENFORCE_S, FILES_CHECK_S, MAX_CORONERS, MAX_UNREAD_ANSWERS, AnswerQueue, NurseryCore
from runner.nursery.reaper import Runner


def runner(pid: int) -> Runner:
    return Runner(f"run-{pid}", "/home", "/run", ProcessIdentity(pid=pid, start_ticks=1))


def test_it_leaves_when_it_has_been_without_a_runner_for_long_enough() -> None:
    core = NurseryCore(100.0, idle_exit_s=60)
    assert [core.may_leave(now) for now in (100.0, 159.9, 160.0)] == [False, False, True]
    core.touched(150.0)
    assert [core.may_leave(now) for now in (160.0, 209.9, 210.0)] == [False, False, True]


def test_a_runner_holds_it_until_its_end_is_on_record() -> None:
    core = NurseryCore(0.0, idle_exit_s=60)
    core.started(runner(7))
    core.stop()
    assert not core.may_leave(1e9)
    assert core.died(7)
    case = core.next_case()
    assert case == runner(7)
    core.coroner_started(8, case)
    assert not core.may_leave(1e9)
    assert core.coroner_of(8) == runner(7)
    core.closed(runner(7), 1e9)
    assert core.may_leave(1e9)
    assert core.runner_count == 0


def test_told_to_stop_it_leaves_with_its_last_runner_and_does_not_wait_out_the_idle_time() -> None:
    core = NurseryCore(0.0, idle_exit_s=60)
    core.started(runner(7))
    core.died(7)
    core.closed(runner(7), 5.0)
    assert not core.may_leave(6.0)
    core.stop()
    assert core.may_leave(6.0)


def test_a_child_that_is_no_runner_is_reaped_at_once() -> None:
    core = NurseryCore(0.0)
    core.started(runner(7))
    assert not core.died(99)
    assert core.next_case() is None


def test_a_death_that_is_seen_again_is_one_case() -> None:
    core = NurseryCore(0.0)
    core.started(runner(7))
    assert core.died(7)
    assert core.died(7)
    assert core.next_case() == runner(7)
    assert core.next_case() is None
    assert core.living() == []


def test_coroners_are_bounded_and_the_other_dead_wait() -> None:
    core = NurseryCore(0.0)
    for pid in range(1, MAX_CORONERS + 3):
        core.started(runner(pid))
        core.died(pid)
    for pid in range(1, MAX_CORONERS + 1):
        case = core.next_case()
        assert case == runner(pid)
        core.coroner_started(1000 + pid, case)
    assert core.next_case() is None
    core.closed(runner(1), 1.0)
    assert core.next_case() == runner(MAX_CORONERS + 1)


def test_files_are_looked_at_from_time_to_time_and_not_once_it_is_stopping() -> None:
    core = NurseryCore(0.0)
    assert [core.should_check_files(now) for now in (1.0, FILES_CHECK_S, FILES_CHECK_S + 1)] == [False, True, False]
    core.stop()
    assert not core.should_check_files(1e9)


def test_it_sleeps_until_the_next_thing_that_time_alone_brings() -> None:
    core = NurseryCore(0.0, idle_exit_s=10)
    assert core.timeout_s(4.0) == 6.0
    core.started(runner(7))
    assert core.timeout_s(4.0) == ENFORCE_S - 4.0


def test_a_launcher_that_takes_no_answers_is_read_no_further() -> None:
    queue = AnswerQueue()
    for number in range(MAX_UNREAD_ANSWERS):
        assert not queue.is_full
        queue.add(bytes([number]))
    assert queue.is_full
    assert queue.first() == b"\0"
    queue.sent()
    assert not queue.is_full
    assert queue.first() == b"\x01"


def test_runners_that_do_not_obey_are_looked_for_every_few_seconds_while_there_are_any() -> None:
    core = NurseryCore(0.0)
    assert not core.should_enforce(100.0)
    core.started(runner(7))
    core.started(runner(8))
    assert core.timeout_s(3.0) == ENFORCE_S - 3.0
    assert [core.should_enforce(now) for now in (3.0, 5.0, 9.9, 10.0)] == [False, True, False, True]
    core.died(7)
    assert core.living_runners() == [runner(8)]


def test_a_child_that_was_not_forked_here_comes_from_the_runner_that_just_died() -> None:
    core = NurseryCore(0.0)
    for pid in (7, 8, 9):
        core.started(runner(pid))
    core.died(7)
    assert core.fresh_deaths() == [runner(7)]
    core.note_children([7, 8, 9, 70, 71], [runner(7)], [])
    core.died(8)
    core.died(9)
    assert core.fresh_deaths() == [runner(8), runner(9)]
    core.note_children([7, 8, 9, 70, 71, 80], [runner(8)], [runner(9)])
    # Nobody knows of which of the two 80 is: the one that left by itself may have meant it to stay.
    assert [core.adopted_from(runner(pid)) for pid in (7, 8, 9)] == [(70, 71), (), (80,)]
