"""The status of a session, read from its record: in words, with details, as the fleet and as the snapshot.

Reading commands use this, so it must import nothing that they may not: no zmq, no asyncio. What is built of what was
read is ``pisub.fleet``'s.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import msgspec

from pisub import arguments
from pisub.client.views import current_view, current_views
from pisub.clock import Clock, SystemClock
from pisub.config import Settings
from pisub.errors import InvalidArgumentError, PisubError, UnknownRunError
from pisub.fleet.dto import FleetKeys, build_fleet
from pisub.fleet.jobs import Job, jobs_of
from pisub.fleet.snapshot import MAX_FINISHED, build_snapshot
from pisub.fleet.words import DEFAULT_LINES, MAX_LINES, fleet_text, run_text, status_text, transcript_text
from pisub.ids import is_id
from pisub.protocol.fleet import AsyncSnapshot, Capacity, FleetStatus
from pisub.protocol.limits import MAX_DURATION_MS
from pisub.record.caps import count_active
from pisub.record.dirs import list_names
from pisub.record.journal_reader import JournalReader
from pisub.record.layout import Layout
from pisub.record.reader import RunView, find_run, read_run
from pisub.record.subscriptions import list_subscriptions

VIEWS: Final = ("fleet", "transcript")


class StatusQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be known; with nothing of it, of the whole session in short.

    Attributes:
        run_id: A run, by its id or a beginning of it.
        index: A step of it, from 0.
        view: ``fleet``, or of one run ``transcript``.
        lines: So many of the transcript, from its end; 80 where it is not said.
    """

    run_id: str | None = None
    index: int | None = None
    view: str | None = None
    lines: int | None = None

    @property
    def is_plain(self) -> bool:
        """Whether nothing is asked for in particular: what is remembered may answer it."""
        return self == StatusQuery()


class SessionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An answer. ``fleet`` and ``snapshot`` are of the whole session, whatever was asked for."""

    text: str
    details: dict[str, Any] | None = None
    fleet: FleetStatus
    snapshot: AsyncSnapshot


class Projection(msgspec.Struct, frozen=True, kw_only=True):
    """What a session's runs were at one moment. Whoever has one answers from memory."""

    session_id: str
    jobs: tuple[Job, ...]
    capacity: Capacity
    problems: tuple[str, ...] = ()


def check_query(query: StatusQuery) -> None:
    """Pass where a query can be answered.

    Raises:
        InvalidArgumentError: ``field`` says what is wrong.
    """
    if query.view is not None and query.view not in VIEWS:
        raise InvalidArgumentError(f"view must be one of {', '.join(VIEWS)}, not {query.view!a:.60}.", field="view")
    if query.lines is not None:
        arguments.whole_number(query.lines, "lines", lowest=1, highest=MAX_LINES)
    if query.index is not None:
        arguments.whole_number(query.index, "index", lowest=0, highest=MAX_DURATION_MS)
    if query.run_id is None and (query.index is not None or query.view == "transcript"):
        what = "index" if query.index is not None else "view"
        raise InvalidArgumentError(f"{what} is of one run: say which.", field="run_id")


class StatusReader:
    """Reads one session's status, as often as wanted; its children's keys stay the same meanwhile.

    Args:
        layout: The record.
        session_id: The session.
        settings: Where its limit of detached runs stands.
        keys: The session's keys, where somebody has given some already.
        clock: Time.
    """

    def __init__(
        self,
        layout: Layout,
        session_id: str,
        settings: Settings,
        *,
        keys: FleetKeys | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._layout = layout
        self._session_id = session_id
        self._limit = settings.max_active_async_runs_per_session
        self._keys = keys or FleetKeys()
        self._clock = clock or SystemClock()

    def read(self) -> Projection:
        """Read the session's runs: all that go on, and the last ones that were submitted."""
        problems: list[str] = []
        views = session_views(self._layout, self._session_id, now_ms=self._clock.wall_ms(), problems=problems)
        return Projection(
            session_id=self._session_id,
            jobs=tuple(jobs_of(views)),
            capacity=Capacity(used=count_active(self._layout, self._session_id), limit=self._limit),
            problems=tuple(problems),
        )

    def answer(self, query: StatusQuery, seen: Projection) -> SessionStatus:
        """Answer a query, of which ``check_query`` has no complaint.

        Raises:
            UnknownRunError: There is no such run, or no such step of it.
            AmbiguousIdError: The beginning of an id fits several.
        """
        now_ms = self._clock.wall_ms()
        fleet = self.fleet(seen)
        snapshot = build_snapshot(seen.jobs, self._session_id, generated_at=now_ms)
        text, details = self._said(query, seen, fleet, now_ms)
        return SessionStatus(text=text, details=details, fleet=fleet, snapshot=snapshot)

    def short(self, seen: Projection) -> SessionStatus:
        """Answer a plain query from memory alone: nothing is read, and there are no details."""
        now_ms = self._clock.wall_ms()
        return SessionStatus(
            text=status_text(seen.jobs, self._session_id, now_ms=now_ms),
            fleet=self.fleet(seen),
            snapshot=build_snapshot(seen.jobs, self._session_id, generated_at=now_ms),
        )

    def fleet(self, seen: Projection) -> FleetStatus:
        """Return the fleet status of what was read."""
        return build_fleet(seen.jobs, self._session_id, self._keys, seen.capacity)

    def _said(
        self, query: StatusQuery, seen: Projection, fleet: FleetStatus, now_ms: int
    ) -> tuple[str, dict[str, Any] | None]:
        if query.run_id is not None:
            return self._of_run(query, find_run(self._layout, query.run_id, session_id=self._session_id), now_ms)
        if query.view == "fleet":
            return fleet_text(fleet, now_ms=now_ms), {"view": "fleet"}
        waits = list_subscriptions(self._layout, session_id=self._session_id)
        lines = [status_text(seen.jobs, self._session_id, now_ms=now_ms), f"Record: {self._layout.runs}"]
        if waits:
            lines.append(f"Waits in the background: {len(waits)}")
        lines += [f"Problem: {each}" for each in seen.problems]
        return "\n".join(lines), {"runs": [self._details(job) for job in seen.jobs if job.is_active]}

    def _of_run(self, query: StatusQuery, run_id: str, now_ms: int) -> tuple[str, dict[str, Any]]:
        view = current_view(self._layout, run_id, now_ms=now_ms)
        (job,) = jobs_of([view])
        if query.index is not None and query.index not in {step.index for step in job.steps}:
            raise UnknownRunError(f"Run {run_id} has no step {query.index}; it has {len(job.steps)}.")
        details = self._details(job)
        if query.view == "transcript":
            lines = query.lines or DEFAULT_LINES
            # Of a long journal the last events are enough: each is a line or more.
            last = deque(JournalReader(self._layout.run(run_id).events).iter_new(), maxlen=lines)
            return transcript_text(last, lines=lines), {**details, "view": "transcript"}
        return f"{run_text(view, job, index=query.index)}\nDir: {self._layout.run(run_id).dir}", details

    def _details(self, job: Job) -> dict[str, Any]:
        return {
            "runId": job.id,
            "state": job.state.value,
            "mode": job.mode,
            "agents": list(job.agents),
            "asyncDir": str(self._layout.run(job.id).dir),
        }


def session_views(layout: Layout, session_id: str, *, now_ms: int, problems: list[str] | None = None) -> list[RunView]:
    """Read a session's runs: those that go on, repaired where they had died, and the last 20 submitted ones.

    Args:
        layout: The record.
        session_id: The session.
        now_ms: Unix time in milliseconds.
        problems: A sentence is added for each run that cannot be read. It hides no other.
    """

    def note(_run_id: str, error: PisubError) -> None:
        if problems is not None:
            problems.append(error.message)

    views = {view.run_id: view for view in current_views(layout, now_ms=now_ms, session_id=session_id, on_problem=note)}
    newest = sorted(filter(is_id, list_names(layout.session(session_id).runs)))[-MAX_FINISHED:]
    for run_id in newest:
        if run_id not in views:
            try:
                views[run_id] = read_run(layout, run_id)
            except UnknownRunError:
                continue  # its submission was never finished, or it was removed
            except (PisubError, OSError) as error:
                note(run_id, error if isinstance(error, PisubError) else PisubError(f"Run {run_id}: {error}"))
    # One that ended below a run that is not here is left out: nobody asked for it.
    return [
        view
        for view in views.values()
        if view.spec.parent_run_id is None or view.spec.parent_run_id in views or not view.state.is_terminal
    ]
