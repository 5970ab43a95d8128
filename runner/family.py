"""A run's ends among relatives: told to the runs below it, and taken over from those above it.

The rules are ``pisub.runs.cascade``'s. This module owns what becomes of it: an event for the machine, lines in the
journal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from structlog.typing import FilteringBoundLogger

from pisub.clock import Clock
from pisub.errors import PisubError
from pisub.record.layout import Layout
from pisub.runs.cascade import ancestor_text, inherited_end, pass_on
from pisub.runs.spec import RunSpec

from .events import EndRequested
from .inbox import ended_by_ancestor

WriteLine = Callable[[str, dict[str, Any]], None]


class Family:
    """The relatives of one run. Used by the shell's thread alone."""

    def __init__(
        self, layout: Layout, spec: RunSpec, *, clock: Clock, write_line: WriteLine, log: FilteringBoundLogger
    ) -> None:
        self._layout = layout
        self._spec = spec
        self._clock = clock
        self._write_line = write_line
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
