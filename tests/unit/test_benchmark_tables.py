"""The tables that the suite writes: computed from its reports, below a head that stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.all_readme import MARKER, README, section, targets, write
from benchmarks.all_targets import TARGETS
from benchmarks.harness import Report, Row, Suite


def row(case: str, k: int, per_s: float, ratio: float | None = None, against: str | None = None) -> Row:
    return Row(case=case, k=k, per_s=per_s, p50_ms=0.25, p99_ms=1234.5, lost=0, doubled=0, ratio=ratio, against=against)


OURS = [
    row("pisub call", 1, 3000, 1.5, "NATS, nats-py"),
    row("NATS, nats-py", 1, 2000),
    row("pisub call", 1, 3000, 1.2, "Redis lists"),
]
RIVALS = Report(benchmark="rivals", machine="a machine", rows=OURS, skipped=["zerorpc (not installed)"])


def lines_about(text: str, goal: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"| {goal}")]


def test_a_target_says_how_far_the_figure_goes() -> None:
    text = targets([RIVALS])
    assert lines_about(text, "calls / NATS, nats-py, K=1 ") == [
        "| calls / NATS, nats-py, K=1 | ≥ 0.8 | ≥ 1.2 | 1.50 | then |"
    ]
    assert lines_about(text, "calls / Redis lists, K=1 ") == [
        "| calls / Redis lists, K=1 | ≥ 1.3 | ≥ 2.2 | 1.20 | no |"
    ]
    assert lines_about(text, "calls / zerorpc through a broker, K=1 ") == [
        "| calls / zerorpc through a broker, K=1 | ≥ 2 | ≥ 3.5 |  | not measured |"
    ]


def test_a_bound_is_reached_from_above() -> None:
    rows = [row("pisub nursery", 1, 20, 4.0, "node -e 0"), row("pisub exec", 1, 3, 0.5, "node -e 0")]
    text = targets([Report(benchmark="launch", machine="", rows=rows)])
    assert lines_about(text, "launch to first message, warm")[0].endswith("| ≤ 0.3 | ≤ 0.1 | 0.25 | must |")
    assert lines_about(text, "launch to first message, cold")[0].endswith("| ≤ 1 | ≤ 0.8 | 2.00 | no |")


def test_a_case_has_one_line_with_all_its_ratios_and_figures_have_the_digits_that_count() -> None:
    lines = section(RIVALS).splitlines()
    assert (
        "| pisub call | 1 | 3,000 | 0.25 | 1,234 | 0 | 0 | NATS, nats-py: **1.50**, Redis lists: **1.20** |  |" in lines
    )
    assert len([line for line in lines if line.startswith("| pisub call")]) == 1
    assert lines[-1] == "- skipped: zerorpc (not installed)"


def test_writing_keeps_the_head_and_replaces_what_is_below(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(f"# By hand\n\n{MARKER}\n\nold tables\n")
    write(Suite(benchmark="all", machine="a machine", load_before=0.5, reports=[RIVALS]), page)
    text = page.read_text()
    assert text.startswith(f"# By hand\n\n{MARKER}\n\nMeasured on ")
    assert "a machine; load average 0.5 before it began." in text
    assert "old tables" not in text
    assert text.count("## Targets") == text.count("## rivals") == 1


def test_a_page_without_the_marker_is_not_overwritten(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("# All by hand\n")
    with pytest.raises(ValueError, match="has no line"):
        write(Suite(benchmark="all", machine="", load_before=0.0, reports=[]), page)
    assert page.read_text() == "# All by hand\n"


def test_the_page_in_the_tree_has_every_target() -> None:
    text = README.read_text(encoding="utf-8")
    assert [target.goal for target in TARGETS if not lines_about(text, target.goal)] == []
