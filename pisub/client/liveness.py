"""Whether a session is live, as its record says: whoever reclaims idle sessions keeps those that are.

Live is a run that is queued or running, also one below another; not what has ended (a paused run has), a wait in the
background, a schedule. It goes by the runner's lock and process, never by the age of a file. What cannot be read is
live: to keep a session too long costs little. No zmq, no asyncio.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from pisub.client.views import current_views
from pisub.errors import PisubError
from pisub.record.atomic import exists
from pisub.record.layout import Layout
from pisub.record.reader import RunView

RUNS: Final = "runs"
COMPLETIONS: Final = "completions"
UNREADABLE: Final = "unreadable"
#: Its host did not say within its time whether it holds ends back.
SILENT_HOST: Final = "silent-host"


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one session.

    Attributes:
        session_id: The session.
        active_runs: Ids of its runs that go on.
        reasons: Why it is live, in a word each; none where it is not.
        problems: What could not be read, a sentence each.
    """

    session_id: str
    active_runs: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def is_live(self) -> bool:
        """Whether it is to be kept."""
        return bool(self.reasons)


def forms_of(session_id: str | None, session_file: str | None) -> list[str]:
    """Return the names under which a session's runs may be recorded: the path of its file, and its bare id."""
    return list(dict.fromkeys(form for form in (session_file, session_id) if form))


def read_lives(layout: Layout, session_ids: Iterable[str], *, now_ms: int) -> list[Life]:
    """Tell of each session whether it is live. Never raises for what is on disk.

    Raises:
        InvalidArgumentError: A text can be no session's id.
    """
    sessions = {session_id: layout.session(session_id) for session_id in session_ids}
    problems: dict[str, PisubError] = {}
    try:
        views = current_views(layout, now_ms=now_ms, on_problem=problems.__setitem__)
        broken = {
            session_id: [error.message for run_id, error in problems.items() if exists(paths.runs / run_id)]
            for session_id, paths in sessions.items()
        }
    except (PisubError, OSError) as error:
        return [Life(session_id=each, reasons=(UNREADABLE,), problems=(str(error),)) for each in sessions]
    # Its marker goes last: until then its end is being written, and nobody could have been told of it.
    going_on = [view for view in views if not view.state.is_terminal or exists(layout.active / view.run_id)]
    return [_life(session_id, going_on, broken[session_id]) for session_id in sessions]


def read_life(layout: Layout, session_id: str, *, now_ms: int) -> Life:
    """Tell whether one session is live. See ``read_lives``."""
    (life,) = read_lives(layout, [session_id], now_ms=now_ms)
    return life


def _life(session_id: str, views: Sequence[RunView], problems: Sequence[str]) -> Life:
    active = tuple(each.run_id for each in views if each.spec.session_id == session_id)
    reasons = [word for word, is_so in ((RUNS, active), (UNREADABLE, problems)) if is_so]
    return Life(session_id=session_id, active_runs=active, reasons=tuple(reasons), problems=tuple(problems))
