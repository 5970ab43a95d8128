"""What a working run shows of itself: busy, quiet, failing, or waiting for a human. Pure: moments in, a word out.

Quiet is no verdict: a child may think for hours. A run is never ended for it.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from pisub.config import Settings
from pisub.protocol.limits import ACTIVE_NOTICE_AFTER_S, FAILED_TOOLS_NOTICE, NEEDS_ATTENTION_AFTER_S


class ActivityState(enum.StrEnum):
    """``activityState`` of a status; absent while there is nothing to say."""

    NEEDS_ATTENTION = "needs_attention"
    ACTIVE_LONG_RUNNING = "active_long_running"


class Reason(enum.StrEnum):
    """``activityReason``: why."""

    WAITING_FOR_HUMAN = "waiting_for_human"  # it needs you
    WAITING_FOR_SUPERVISOR = "waiting_for_supervisor"  # it needs a word of the session that started it
    TOOL_FAILURES = "tool_failures"  # several tools in a row failed
    QUIET = "quiet"  # it has reported nothing for a while, and no tool is open
    TOOL_OPEN = "tool_open"  # one tool has been at work for long
    LONG_RUNNING = "long_running"  # it works, and has for long

    @property
    def is_waiting(self) -> bool:
        """Whether the run can go on only when somebody says something: that ends every wait for it."""
        return self in (Reason.WAITING_FOR_HUMAN, Reason.WAITING_FOR_SUPERVISOR)


def is_waiting_reason(text: str | None) -> bool:
    """Tell whether an ``activityReason`` says that the run waits for somebody."""
    return text in {each.value for each in Reason if each.is_waiting}


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run, in seconds of one clock.

    Attributes:
        started: Its begin.
        last_activity: When it last reported anything.
        tool_since: Since when its newest open tool is at work; None without one.
        waiting_since: Since when it waits for a human; None where it does not.
        supervised_since: Since when it waits for its supervisor; likewise.
        failed_tools: How many tools in a row failed, up to now, and ``failed_since`` when the last of them did.
    """

    started: float
    last_activity: float
    tool_since: float | None = None
    waiting_since: float | None = None
    supervised_since: float | None = None
    failed_tools: int = 0
    failed_since: float = 0.0


class Attention(msgspec.Struct, frozen=True):
    """The word for it, and since when it holds."""

    state: ActivityState
    reason: Reason
    since: float


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """When there is something to say (contract, runs 6.9).

    Attributes:
        quiet_after_s: Of a silence longer than this.
        active_after_s: Of a run, or a tool, that has been at work for this long.
        failed_tools: After so many in a row.
    """

    quiet_after_s: float = NEEDS_ATTENTION_AFTER_S
    active_after_s: float = ACTIVE_NOTICE_AFTER_S
    failed_tools: int = FAILED_TOOLS_NOTICE


#: Who thinks for long is silent for long: by what the silence that is expected grows.
_THINKING_FACTORS: Final = {"medium": 2, "high": 5, "xhigh": 10, "max": 10}


def thresholds_of(settings: Settings, thinking: str | None) -> Thresholds:
    """Return the thresholds of a run.

    Args:
        settings: Those of its launch. A silence that they set holds for every agent.
        thinking: How much its model thinks: a level, or None.
    """
    quiet_ms = settings.needs_attention_after_ms
    factor = _THINKING_FACTORS.get(thinking or "", 1)
    return Thresholds(
        quiet_after_s=NEEDS_ATTENTION_AFTER_S * factor if quiet_ms is None else quiet_ms / 1000,
        active_after_s=settings.active_notice_after_ms / 1000,
        failed_tools=settings.failed_tools_notice,
    )


_DEFAULT: Final = Thresholds()


def classify(activity: Activity, now: float, limits: Thresholds = _DEFAULT) -> Attention | None:
    """Return what to tell people, or None. The first rule that fits counts."""
    if activity.waiting_since is not None:
        return Attention(ActivityState.NEEDS_ATTENTION, Reason.WAITING_FOR_HUMAN, activity.waiting_since)
    if activity.supervised_since is not None:
        return Attention(ActivityState.NEEDS_ATTENTION, Reason.WAITING_FOR_SUPERVISOR, activity.supervised_since)
    if activity.failed_tools >= limits.failed_tools:
        return Attention(ActivityState.NEEDS_ATTENTION, Reason.TOOL_FAILURES, activity.failed_since)
    if activity.tool_since is not None:  # an open tool explains the silence
        if now - activity.tool_since >= limits.active_after_s:
            return Attention(ActivityState.ACTIVE_LONG_RUNNING, Reason.TOOL_OPEN, activity.tool_since)
        return None
    if now - activity.last_activity > limits.quiet_after_s:
        return Attention(ActivityState.NEEDS_ATTENTION, Reason.QUIET, activity.last_activity)
    if now - activity.started >= limits.active_after_s:
        return Attention(ActivityState.ACTIVE_LONG_RUNNING, Reason.LONG_RUNNING, activity.started)
    return None


#: "Strictly greater" needs a moment that is later than the threshold.
_PAST: Final = 0.001


def next_change(activity: Activity, now: float, limits: Thresholds = _DEFAULT) -> float | None:
    """Return when time alone can change the word; None where only an event can."""
    is_waiting = activity.waiting_since is not None or activity.supervised_since is not None
    if is_waiting or activity.failed_tools >= limits.failed_tools:
        return None
    due: tuple[float, ...] = ()
    if activity.tool_since is not None:
        due = (activity.tool_since + limits.active_after_s,)
    else:
        due = (activity.last_activity + limits.quiet_after_s + _PAST, activity.started + limits.active_after_s)
    return min((at for at in due if at > now), default=None)
