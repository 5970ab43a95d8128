"""The queue from the agent's threads: order, bounds, and what is never dropped."""

from pisub.engines.base import ArtifactWritten, LogLine, OutputBytes
from runner.intake import AskWithdrawn, Intake


def test_the_loop_is_woken_once_for_many_items_and_gets_them_in_order() -> None:
    woken: list[int] = []
    intake = Intake(lambda: woken.append(1))
    for number in range(3):
        intake.put(AskWithdrawn(number))
    assert intake.take_all() == ([AskWithdrawn(0), AskWithdrawn(1), AskWithdrawn(2)], 0)
    intake.put(AskWithdrawn(3))
    assert len(woken) == 2


def test_above_its_bounds_what_informs_is_counted_and_what_decides_is_kept() -> None:
    intake = Intake(lambda: None, max_bytes=10, max_events=2)
    intake.put(OutputBytes("stdout", b"12345678"))
    intake.put(LogLine("abc"))
    intake.put(LogLine("ab"))
    intake.put(LogLine(""))
    intake.put(ArtifactWritten("a", 1))
    assert intake.take_all() == ([OutputBytes("stdout", b"12345678"), LogLine("ab"), ArtifactWritten("a", 1)], 2)
    intake.put(LogLine("abc"))
    assert intake.take_all() == ([LogLine("abc")], 0)
