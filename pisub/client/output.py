"""The whole text of a run's child, wherever it lies."""

from __future__ import annotations

from pisub.record.layout import Layout
from pisub.record.model import RunResult


def whole_output(layout: Layout, result: RunResult) -> str:
    """Return the child's whole text: from its file where the result holds a preview."""
    if result.output_path is None:
        return result.output
    path = layout.run(result.run_id).dir / result.output_path
    return path.read_text(encoding="utf-8", errors="replace")
