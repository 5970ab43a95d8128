"""The contract's vectors of usage: what a child's messages say, against what was seen live (delegation 1.10)."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pisub.runs.usage import Usage
from pisub.runs.usage_reconcile import reconcile_usage

LIVE = Usage(input=20, output=10, cache_read=3, cache_write=4, cost=2, turns=9)


def said(*values: Any, t: Any = None, **named: Any) -> dict[str, Any]:
    names = ("input", "output", "cacheRead", "cacheWrite", "cost")
    message = {"role": "assistant", "usage": {**dict(zip(names, values, strict=False)), **named}}
    return message if t is None else {**message, "timestamp": t}


USER = {"role": "user"}
OLD = said(999, 999, 999, 999, 999)
SAME = (1, 2, 3, 4, 5)
VECTORS: list[tuple[list[Any], Any, tuple[float, ...] | None]] = [
    ([USER, USER], 0, None),
    ([OLD, OLD, said(2, 1, 0, 0, {"total": 0.2})], 2, (2, 1, 0, 0, 0.2, 1)),
    ([said(2, 1, 3, 4, 0.25), said(4, 3, 2, 1, {"total": 0.5})], 0, (6, 4, 5, 5, 0.75, 2)),
    (
        [said(-1, math.nan, 0, inputTokens=5, outputTokens=2, cacheWriteTokens=1, cost={"total": 0})],
        0,
        (5, 2, 0, 1, 0, 1),
    ),
    ([said(0, 0, 0, 0, 0)], 0, (0, 0, 0, 0, 0, 1)),
    ([said(1, 1, 1, 1, 1), said(2, "bad", -1, 2, {})], 0, (3, 10, 3, 3, 2, 2)),
    ([said(*SAME, t=10), said(*SAME, t=10), said(*SAME, t=11)], 0, (2, 4, 6, 8, 10, 2)),
    ([said(*SAME, t=10), USER, said(*SAME, t=10)], 0, (2, 4, 6, 8, 10, 2)),
    ([said(*SAME)], 2, None),
    # Beyond the contract's own.
    ([said(*SAME), said(*SAME)], 0, (2, 4, 6, 8, 10, 2)),
    ([said(*SAME, t=""), said(*SAME, t="")], 0, (2, 4, 6, 8, 10, 2)),
    ([said(*SAME, t="a"), said(*SAME, t="a"), said(*SAME, t="a")], 0, (1, 2, 3, 4, 5, 1)),
    ([said(True, 1, 1, 1, 1)], 0, (20, 1, 1, 1, 1, 1)),
    ([{"role": "assistant"}, None, "text"], 0, (20, 10, 3, 4, 2, 1)),
    ([said(*SAME)], -1, None),
    ([said(*SAME)], True, None),
    ([said(*SAME)], 0.0, None),
    ([], 0, None),
]


@pytest.mark.parametrize(("messages", "baseline", "expected"), VECTORS)
def test_complete_fields_replace_what_was_seen_and_incomplete_ones_do_not(
    messages: list[Any], baseline: Any, expected: tuple[float, ...] | None
) -> None:
    found = reconcile_usage(LIVE, messages, baseline)
    assert found == (LIVE if expected is None else Usage(**dict(zip(Usage.__struct_fields__, expected, strict=True))))  # type: ignore[arg-type]
