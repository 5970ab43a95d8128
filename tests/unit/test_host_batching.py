from __future__ import annotations

import ast
import inspect

import msgspec
import pytest

from pisub.hosting import batching
from pisub.hosting.batching import Batcher, BatchTimes, Group, batch_times


class End(msgspec.Struct, frozen=True):
    """The end of a run."""

    name: str
    session_id: str = "s"


def told(groups: list[Group[End]]) -> list[tuple[str, bool]]:
    return [("".join(each.name for each in group.items), group.is_quiet) for group in groups]


def successes(batcher: Batcher[End], *moments: float) -> list[tuple[str, bool]]:
    """Hand in one success at each moment; return what was told by then."""
    groups: list[Group[End]] = []
    for name, now in zip("abcdefghijklmnopqrstuvwxyz", moments, strict=False):
        groups += batcher.tick(now)
        groups += batcher.add(End(name), now, is_success=True)
    return told(groups)


def test_successes_that_come_close_together_are_told_together_once_nothing_came_for_a_while() -> None:
    batcher: Batcher[End] = Batcher()
    assert successes(batcher, 0.0, 0.1, 0.2) == []
    assert batcher.next_deadline() == pytest.approx(0.35)
    assert told(batcher.tick(0.349)) == []
    assert told(batcher.tick(0.351)) == [("abc", True)]
    assert (batcher.next_deadline(), batcher.held) == (None, ())


def test_a_stream_of_successes_is_told_a_second_after_its_first_at_the_latest() -> None:
    batcher: Batcher[End] = Batcher()
    assert successes(batcher, *(n / 10 for n in range(11))) == [("abcdefghij", True)]
    assert [each.name for each in batcher.held] == ["k"]


def test_a_failure_is_told_at_once_after_what_its_own_session_holds() -> None:
    batcher: Batcher[End] = Batcher()
    assert successes(batcher, 0.0) == []
    assert batcher.add(End("x", "other"), 0.0, is_success=True) == []
    assert told(batcher.add(End("f"), 0.05, is_success=False)) == [("a", True), ("f", False)]
    assert batcher.held == (End("x", "other"),)
    assert told(batcher.add(End("g"), 0.06, is_success=False)) == [("g", False)]


@pytest.mark.parametrize(
    ("after_s", "debounce_s", "longest_s"), [(1.999, 0.075, 0.4), (2.0, 0.15, 1.0)], ids=["straggler", "not one"]
)
def test_what_comes_soon_after_a_group_is_held_shorter(after_s: float, debounce_s: float, longest_s: float) -> None:
    batcher: Batcher[End] = Batcher()
    batcher.add(End("f"), 0.0, is_success=False)
    batcher.add(End("a"), after_s, is_success=True)
    assert batcher.next_deadline() == pytest.approx(after_s + debounce_s)
    now = after_s
    while batcher.held:
        now += 0.05
        batcher.tick(now)
        if batcher.held:
            batcher.add(End("b"), now, is_success=True)
    assert after_s + longest_s <= now < after_s + longest_s + 0.06


def test_switched_off_each_is_told_at_once_and_by_itself() -> None:
    batcher: Batcher[End] = Batcher(BatchTimes(is_enabled=False))
    assert told(batcher.add(End("a"), 0.0, is_success=True)) == [("a", True)]
    assert told(batcher.add(End("b"), 0.0, is_success=False)) == [("b", False)]


def test_a_time_that_is_no_whole_number_above_zero_is_taken_from_the_next_level() -> None:
    first = {"debounce_ms": 0, "max_wait_ms": 2.0, "straggler_debounce_ms": True, "straggler_max_wait_ms": 7}
    second = {"debounce_ms": 9, "max_wait_ms": -1, "is_enabled": False}
    assert batch_times(first, second) == BatchTimes(is_enabled=False, debounce_ms=9, straggler_max_wait_ms=7)
    assert batch_times() == BatchTimes()


def test_the_core_imports_nothing_that_does_anything() -> None:
    tree = ast.parse(inspect.getsource(batching))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names == {"__future__", "collections.abc", "typing", "msgspec"}
