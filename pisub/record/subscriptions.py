"""Waits that nobody stands in: files that say whom to wake when a run has ended, needs attention, or takes too long.

Owns the files. Who looks at them, and what is done when one is over, is ``pisub.hosting.subscriptions``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pisub.errors import PisubError
from pisub.ids import check_id, is_id
from pisub.protocol.base import Record
from pisub.record.atomic import encode_record, read_record, remove, sweep_temp, write_new
from pisub.record.dirs import list_names, make_dir
from pisub.record.layout import Layout
from pisub.record.reader import as_problem

_SUFFIX = ".json"


class WaitSubscription(Record, frozen=True, kw_only=True):
    """``wait-subscriptions/<token>.json`` (contract, runs 6.6).

    Attributes:
        token: Its own id.
        session_id: Whose session is woken; only its host settles it.
        target_kind: ``async``: a run.
        run_id: The run's whole id.
        requested_id: What the asker wrote.
        created_at: Unix time in milliseconds.
        expires_at: When the wait is over without an end.
        stop_on_attention: Whether a run that is only quiet ends the wait.
    """

    version: int = 1
    token: str
    session_id: str
    target_kind: str = "async"
    run_id: str
    requested_id: str
    created_at: int
    expires_at: int
    stop_on_attention: bool = True


def subscribe(layout: Layout, subscription: WaitSubscription) -> bool:
    """Write a subscription; it outlives its writer. False when its token is taken.

    Raises:
        OSError: The disk is full, or the like.
    """
    make_dir(_directory(layout))
    return write_new(_path(layout, subscription.token), encode_record(subscription), fsync=False)


def list_subscriptions(
    layout: Layout, *, session_id: str | None = None, on_problem: Callable[[str, PisubError], None] | None = None
) -> list[WaitSubscription]:
    """Return the subscriptions of a session, or all, oldest first; one that cannot be read hides no other."""
    found: list[WaitSubscription] = []
    for name in sorted(list_names(_directory(layout))):
        token = name.removesuffix(_SUFFIX)
        if not is_id(token):
            continue
        try:
            each = read_record(_path(layout, token), WaitSubscription)
        except (PisubError, OSError) as error:
            if on_problem is not None:
                on_problem(token, as_problem(f"Wait subscription {token}", error))
            continue
        if each is not None and session_id in (None, each.session_id):
            found.append(each)
    return found


def clear_subscription(layout: Layout, token: str) -> bool:
    """Remove a subscription. Who was given True, and nobody else, says that the wait is over.

    Raises:
        OSError: It could not be removed: it is still there, and nothing may be said.
    """
    return remove(_path(layout, token))


def sweep_subscriptions(layout: Layout, *, before_ms: int, kept_session: str = "") -> int:
    """Remove what expired before a moment, and what killed writers left. Returns how many.

    Args:
        layout: The record.
        before_ms: Unix time in milliseconds.
        kept_session: Whose stay, however old: its own host tells of them, also one that comes days later. '' is nobody.
    """
    sweep_temp(_directory(layout))
    old = [
        each for each in list_subscriptions(layout) if each.expires_at < before_ms and each.session_id != kept_session
    ]
    return sum(clear_subscription(layout, each.token) for each in old)


def waited_runs(layout: Layout) -> frozenset[str] | None:
    """Return the runs that somebody waits for; None where a subscription cannot be read: it may be for any run."""
    problems: list[str] = []
    found = list_subscriptions(layout, on_problem=lambda token, _: problems.append(token))
    return None if problems else frozenset(each.run_id for each in found)


def _directory(layout: Layout) -> Path:
    return layout.root / "wait-subscriptions"


def _path(layout: Layout, token: str) -> Path:
    return _directory(layout) / f"{check_id(token, what='wait token')}{_SUFFIX}"
