"""What a child reports, as the activity of its run. Keeps the figures; ``pisub.runs.attention`` has the rules."""

from __future__ import annotations

from pisub.engines import base as eng
from pisub.runs.attention import Activity, Attention, Thresholds, classify, next_change


class ActivityWatch:
    """One run's activity. Times are the loop's.

    Args:
        now: The run's begin.
        thresholds: When there is something to say.
    """

    def __init__(self, now: float, thresholds: Thresholds) -> None:
        self._thresholds = thresholds
        self._started = now
        self.last_at = now
        self._tools: dict[int, float] = {}
        self._failed = 0
        self._failed_at = now
        self._waiting_since: float | None = None
        self._supervised_since: float | None = None
        self.next_change: float | None = None

    def take(self, event: eng.EngineEvent, now: float) -> None:
        """Take a report of the child's: whatever it is, it is a sign of life."""
        self.last_at = now
        match event:
            case eng.ToolStarted(call_id):
                self._tools[call_id] = now
            case eng.ToolEnded(call_id, is_error=is_error):
                self._tools.pop(call_id, None)
                self._failed = self._failed + 1 if is_error else 0
                self._failed_at = now
            case _:
                pass

    @property
    def is_supervised(self) -> bool:
        """Whether the run waits for its supervisor."""
        return self._supervised_since is not None

    def note_supervised(self, now: float, *, is_waiting: bool) -> None:
        """The run begins to wait for its supervisor, or does no longer."""
        self._supervised_since = now if is_waiting else None
        self.last_at = now

    def look(self, now: float, *, is_working: bool, is_waiting: bool) -> Attention | None:
        """Return what there is to say, and know when that can change by time alone.

        Args:
            now: The moment.
            is_working: Whether the run goes on undisturbed; of one that is being ended there is nothing to say.
            is_waiting: Whether it waits for a human.
        """
        if is_waiting and self._waiting_since is None:
            self._waiting_since = now
        elif not is_waiting and self._waiting_since is not None:
            self._waiting_since = None
            self.last_at = now  # the answer is news for the child: its silence begins here
        self.next_change = None
        if not is_working:
            return None
        activity = Activity(
            started=self._started,
            last_activity=self.last_at,
            tool_since=next(reversed(self._tools.values()), None),
            waiting_since=self._waiting_since,
            supervised_since=self._supervised_since,
            failed_tools=self._failed,
            failed_since=self._failed_at,
        )
        self.next_change = next_change(activity, now, self._thresholds)
        return classify(activity, now, self._thresholds)
