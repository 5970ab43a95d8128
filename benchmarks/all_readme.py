"""``benchmarks/README.md``: a head that people write, and below it tables that only the command writes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.all_targets import TARGETS, Reports
from benchmarks.harness import Report, Row, Suite

README: Final = Path(__file__).with_name("README.md")
#: The head ends here. Everything below is made.
MARKER: Final = "<!-- Below: made by `python -m benchmarks all --write`, never by hand. -->"


def write(suite: Suite, path: Path = README) -> None:
    """Replace all that is below the marker.

    Raises:
        ValueError: The file has no marker: it would lose its head.
    """
    head, marker, _ = path.read_text(encoding="utf-8").partition(MARKER)
    if not marker:
        raise ValueError(f"{path} has no line {MARKER!r}")
    today = dt.datetime.now(dt.UTC).date().isoformat()
    where = f"Measured on {today}: {suite.machine}; load average {suite.load_before:.1f} before it began."
    parts = [head + marker, where, targets(suite.reports)]
    parts += [section(report) for report in suite.reports]
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def targets(reports: Sequence[Report]) -> str:
    """Lay out what was to be reached and what was."""
    found = Reports(reports)
    lines = ["## Targets", "", "| goal | must | then | here | reached |", "|---|---:|---:|---:|---|"]
    for target in TARGETS:
        value = target.look(found)
        sign = "≤ " if target.is_bound else "≥ "
        here = "" if value is None else f"{value:.2f}"
        lines.append(
            f"| {target.goal} | {sign}{target.must:g} | {sign}{target.then:g} | {here} | {target.verdict(value)} |"
        )
    return "\n".join(lines)


def section(report: Report) -> str:
    """Lay out one benchmark's rows: a line for each case and K, ours with every ratio."""
    lines = [
        f"## {report.benchmark}",
        "",
        f"`python -m benchmarks {report.benchmark}`",
        "",
        "| case | K | per s | p50 ms | p99 ms | lost | doubled | ratio to | CPU µs per operation |",
        "|---|---:|---:|---:|---:|---:|---:|---|---|",
    ]
    notes: list[str] = []
    for rows in _by_case(report.rows):
        row = rows[0]
        ratios = ", ".join(f"{each.against}: **{each.ratio:.2f}**" for each in rows if each.ratio is not None)
        cpu = ", ".join(f"{name} {value:.0f}" for name, value in row.cpu_us.items())
        figures = [_figure(row.per_s), _figure(row.p50_ms), _figure(row.p99_ms)]
        cells = [row.case, str(row.k), *figures, str(row.lost), str(row.doubled), ratios, cpu]
        lines.append(f"| {' | '.join(cells)} |")
        if row.extra or row.foreign:
            extra = ", ".join(f"{name} {value:g}" for name, value in row.extra.items())
            notes.append(f"- {row.case}, K={row.k}: {extra}" + (f", foreign {row.foreign}" if row.foreign else ""))
    if notes:
        lines += ["", *notes]
    if report.skipped:
        lines += ["", *(f"- skipped: {each}" for each in report.skipped)]
    return "\n".join(lines)


def _by_case(rows: Sequence[Row]) -> list[list[Row]]:
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row.case, row.k), []).append(row)
    return list(found.values())


def _figure(value: float) -> str:
    """Write a number with as many digits as mean something; nothing for what was not measured."""
    if not value:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
