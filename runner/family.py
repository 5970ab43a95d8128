"""A run among its relatives: how it ends for those below it and by those above, and whose questions it waits for.

The rules are ``pisub.runs.cascade``'s and ``pisub.runs.standstill``'s. This module owns what becomes of it: events for
the machine, lines in the journal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from structlog.typing import FilteringBoundLogger

from pisub.clock import Clock
from pisub.errors import PisubError
from pisub.record.awaits import awaited_runs
from pisub.record.layout import Layout
from pisub.record.reader import read_run
from pisub.record.tree import descendants
from pisub.runs.attention import Reason
from pisub.runs.cascade import ancestor_text, inherited_end, pass_on
from pisub.runs.spec import RunSpec
from pisub.runs.standstill import Below, stands_still

from .contacts import Contacts
from .events import EndRequested
from .inbox import ended_by_ancestor
from .recorder import Recorder

#: How late a question of a run that is waited for may stop the clock, or its answer set it going.
LOOK_EVERY_S: Final = 1.0


class Family:
    """The relatives of one run. Used by the shell's thread alone."""

    def __init__(
        self,
        layout: Layout,
        spec: RunSpec,
        recorder: Recorder,
        on_waiting: Callable[[bool], None],
        *,
        clock: Clock,
        log: FilteringBoundLogger,
    ) -> None:
        self._on_waiting = on_waiting
        self._write_line = recorder.write_line
        self._contacts = Contacts(
            layout, spec.run_id, write_line=recorder.write_line, on_waiting=recorder.note_supervised
        )
        self._look_at = 0.0
        self._is_still = False
        self._layout = layout
        self._spec = spec
        self._clock = clock
        self._log = log
        self._untold: set[tuple[str, str]] = set()

    def pass_on(self, kind: str) -> None:
        """Ask all that goes on below to end likewise. Who cannot be told is a line of the journal, once a kind."""
        for untold in pass_on(self._layout, self._spec.run_id, kind, now_ms=self._clock.wall_ms()):
            if (kind, untold.run_id) not in self._untold:
                self._untold.add((kind, untold.run_id))
                data = {"runId": untold.run_id, "error": untold.error}
                self._write_line(f"subagent.nested.{kind}_failed", data)

    def inherited(self) -> EndRequested | None:
        """Return the end that comes from a run above; it may have looked for what is below before this one was there.

        Asked once, at the start: from then on who ends above finds this run.
        """
        try:
            found = inherited_end(self._layout, self._spec)
        except (OSError, PisubError) as error:
            self._log.warning("ancestors_not_read", error=str(error))
            return None
        return None if found is None else ended_by_ancestor(found[0], ancestor_text(*found))

    # Their questions. --------------------------------------------------------------------------------------------

    def next_deadline(self) -> float:
        """Return when to call ``look`` again."""
        return self._look_at

    def look(self, now: float, *, at_once: bool = False) -> None:
        """Look, where it is due, for whom this run waits: its supervisor, or nobody but runs that wait for a human."""
        if now < self._look_at and not at_once:
            return
        self._look_at = now + LOOK_EVERY_S
        try:
            self._contacts.look()
            awaited = awaited_runs(self._layout.run(self._spec.run_id))
            is_still = bool(awaited) and stands_still(awaited, self._live_below())
        except (OSError, PisubError) as error:
            self._log.warning("relatives_not_read", error=str(error))
            return
        if is_still is not self._is_still:
            self._is_still = is_still
            self._on_waiting(is_still)

    def _live_below(self) -> list[Below]:
        views = [read_run(self._layout, spec.run_id) for spec in descendants(self._layout, self._spec.run_id)]
        return [
            Below(view.run_id, view.status is not None and view.status.activity_reason == Reason.WAITING_FOR_HUMAN)
            for view in views
            if not view.state.is_terminal
        ]
