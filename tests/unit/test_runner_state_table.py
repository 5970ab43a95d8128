"""The tables of the run's states in docs/architecture.md are the machine's own."""

import re
from pathlib import Path

from runner.state_table import precedence, transitions

DOCUMENT = (Path(__file__).parents[2] / "docs/architecture.md").read_text(encoding="utf-8")


def section(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n(.*?)\n<!-- end -->", DOCUMENT, re.DOTALL)
    assert found is not None
    return found[1]


def test_what_each_event_does_in_each_phase_is_documented() -> None:
    assert section("run transitions") == transitions()


def test_the_precedence_of_ends_is_documented() -> None:
    assert section("run precedence") == precedence()


def row(table: str, name: str) -> list[str]:
    line = next(line for line in table.splitlines() if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_an_interrupt_does_nothing_after_a_stop_a_timeout_or_the_child_s_own_end() -> None:
    starting, running, *rest = row(transitions(), "interrupt")
    assert starting == "noted"
    assert running.endswith("→ stopping")
    assert set(rest) == {"·"}


def test_once_a_stop_or_a_timeout_was_accepted_it_is_the_end() -> None:
    table = precedence()
    for first, state in (("stop", "stopped, stop"), ("timeout", "failed, timeout")):
        assert set(row(table, first)) == {state}
        for second in {"stop", "timeout", "interrupt"} - {first}:
            assert set(row(table, f"{first}, then {second}")) == {state}
