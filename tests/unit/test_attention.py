"""What a run shows of itself, and when that changes: the thresholds, and which rule comes first."""

import pytest

from pisub.config import Settings
from pisub.runs.attention import (
    Activity,
    ActivityState,
    Attention,
    Reason,
    Thresholds,
    classify,
    next_change,
    thresholds_of,
)
from pisub.runs.preview import preview

NEEDS, ACTIVE = ActivityState.NEEDS_ATTENTION, ActivityState.ACTIVE_LONG_RUNNING


@pytest.mark.parametrize(
    ("activity", "now", "expected"),
    [
        (Activity(started=0, last_activity=0), 60.0, None),  # strictly greater
        (Activity(started=0, last_activity=0), 60.1, Attention(NEEDS, Reason.QUIET, 0)),
        (Activity(started=0, last_activity=239), 239.9, None),
        (Activity(started=0, last_activity=239), 240.0, Attention(ACTIVE, Reason.LONG_RUNNING, 0)),
        (Activity(started=0, last_activity=100), 300.0, Attention(NEEDS, Reason.QUIET, 100)),
        # An open tool explains the silence.
        (Activity(started=0, last_activity=10, tool_since=10), 249.9, None),
        (Activity(started=0, last_activity=10, tool_since=10), 250.0, Attention(ACTIVE, Reason.TOOL_OPEN, 10)),
        (Activity(started=0, last_activity=5, failed_tools=2, failed_since=5), 6.0, None),
        (
            Activity(started=0, last_activity=5, failed_tools=3, failed_since=5),
            6.0,
            Attention(NEEDS, Reason.TOOL_FAILURES, 5),
        ),
        # Whoever waits for a human needs one, whatever else is so.
        (
            Activity(started=0, last_activity=0, tool_since=0, waiting_since=7, failed_tools=9),
            999.0,
            Attention(NEEDS, Reason.WAITING_FOR_HUMAN, 7),
        ),
    ],
)
def test_the_word_for_an_activity(activity: Activity, now: float, expected: Attention | None) -> None:
    assert classify(activity, now) == expected


@pytest.mark.parametrize(
    ("thinking", "quiet_ms", "expected"),
    [
        (None, None, 60.0),
        ("off", None, 60.0),
        ("low", None, 60.0),
        ("medium", None, 120.0),
        ("high", None, 300.0),
        ("xhigh", None, 600.0),
        ("max", None, 600.0),
        ("max", 5_000, 5.0),  # who sets it means it
    ],
)
def test_who_thinks_may_be_silent_for_longer_unless_a_setting_says_how_long(
    thinking: str | None, quiet_ms: int | None, expected: float
) -> None:
    settings = Settings(needs_attention_after_ms=quiet_ms)
    assert thresholds_of(settings, thinking) == Thresholds(quiet_after_s=expected)


def test_the_thresholds_of_the_settings_count() -> None:
    limits = thresholds_of(Settings(active_notice_after_ms=7_000, failed_tools_notice=1), None)
    working = Activity(started=0, last_activity=6)
    assert classify(working, 7.0, limits) == Attention(ACTIVE, Reason.LONG_RUNNING, 0)
    assert next_change(working, 6.0, limits) == 7.0
    failing = Activity(started=0, last_activity=1, failed_tools=1, failed_since=1)
    assert classify(failing, 1.0, limits) == Attention(NEEDS, Reason.TOOL_FAILURES, 1)


@pytest.mark.parametrize(
    ("activity", "now", "due"),
    [
        (Activity(started=0, last_activity=0), 0.0, 60.001),
        (Activity(started=0, last_activity=230), 231.0, 240.0),
        (Activity(started=0, last_activity=0), 61.0, 240.0),
        (Activity(started=0, last_activity=300), 301.0, 360.001),
        (Activity(started=0, last_activity=10, tool_since=10), 20.0, 250.0),
        (Activity(started=0, last_activity=10, tool_since=10), 250.0, None),
        (Activity(started=0, last_activity=0, waiting_since=3), 5.0, None),
    ],
)
def test_when_time_alone_can_change_the_word(activity: Activity, now: float, due: float | None) -> None:
    assert next_change(activity, now) == due


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two\n lines\tone", "two lines one"),
        ("set API_KEY=abc123 now", "set API_KEY=[redacted] now"),
        ("Authorization: Bearer abc.def", "Authorization: [redacted]"),
        ("use sk-abcdefghijklmnopqrstuv", "use [redacted]"),
        ("x" * 200, "x" * 159 + "…"),
    ],
)
def test_a_preview_is_one_short_line_without_secrets(text: str, shown: str) -> None:
    assert preview(text, width=160) == shown
