from pisub.clock import SystemClock, WorkClock


def test_work_is_counted_and_waiting_for_a_human_is_not() -> None:
    clock = WorkClock(100.0, limit_s=3.0)
    clock.tick(101.0)
    clock.start_waiting(101.5)
    for moment in range(102, 200):
        clock.tick(float(moment))
    clock.stop_waiting(199.5)
    clock.tick(200.0)
    assert (clock.worked_s, clock.waited_s, clock.remaining_s) == (2.0, 98.0, 1.0)
    assert not clock.is_expired


def test_waits_nest() -> None:
    clock = WorkClock(0.0)
    clock.start_waiting(0.0)
    clock.start_waiting(1.0)
    clock.stop_waiting(2.0)
    assert clock.is_waiting
    clock.stop_waiting(3.0)
    assert not clock.is_waiting
    assert (clock.worked_s, clock.waited_s) == (0.0, 3.0)


def test_a_suspension_counts_as_two_seconds_at_most() -> None:
    clock = WorkClock(0.0, limit_s=10.0)
    clock.tick(3_600.0)
    assert clock.worked_s == 2.0
    assert not clock.is_expired


def test_time_that_steps_back_counts_as_nothing() -> None:
    clock = WorkClock(50.0)
    clock.tick(10.0)
    clock.tick(11.0)
    assert clock.worked_s == 1.0


def test_the_limit_is_reached_exactly() -> None:
    clock = WorkClock(0.0, limit_s=2.0)
    clock.tick(1.0)
    clock.tick(2.0)
    assert clock.is_expired
    assert clock.remaining_s == 0.0
    assert WorkClock(0.0).remaining_s is None


def test_the_system_clock_gives_milliseconds_of_this_century() -> None:
    assert 1_500_000_000_000 < SystemClock().wall_ms() < 4_000_000_000_000
