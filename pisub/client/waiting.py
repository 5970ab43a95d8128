"""When a wait is over: by who is waited for, never by how many. Pure: no file, no clock, no loop.

Whoever waits takes a snapshot, hands it in, and sleeps while the answer is None. What wakes the sleeper early only
shortens the sleep; a snapshot decides. Work that begins later is nobody's that was waited for, so it changes nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

import msgspec

from pisub.errors import AmbiguousIdError, UnknownRunError

#: Contract, runs 6.4.
DEFAULT_TIMEOUT_MS = 1_800_000
POLL_MS = 1_000
MIN_POLL_MS = 250


class WaitMode(enum.StrEnum):
    """What ends a wait: the first of those who were there when it began, all of them, or one that was named."""

    FIRST = "first"
    ALL = "all"
    ID = "id"


class WaitEnd(enum.StrEnum):
    """Why a wait is over."""

    COMPLETED = "completed"
    NOTHING = "nothing"
    ATTENTION = "attention"
    TIMEOUT = "timeout"
    ABORTED = "aborted"
    UNCONFIRMED = "unconfirmed"

    @property
    def is_error(self) -> bool:
        """Whether whoever asked did not get what was asked for."""
        return self in (WaitEnd.TIMEOUT, WaitEnd.ABORTED, WaitEnd.UNCONFIRMED)


class Identity(msgspec.Struct, frozen=True, order=True):
    """Who is waited for: a run (``provider`` is ''), or a provider's item."""

    item: str
    session_id: str
    provider: str = ""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of work in a snapshot.

    Attributes:
        identity: Whose it is.
        is_active: Queued or running.
        attention: Why it needs somebody; '' where it does not.
        must_stop: It waits for a human: that ends a wait also where mere quiet does not.
    """

    identity: Identity
    is_active: bool
    attention: str = ""
    must_stop: bool = False


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What is there at one moment.

    Attributes:
        items: Of the one session. An identity that is not among them has vanished.
        problems: By provider: why nothing can be said of its items.
    """

    items: tuple[Item, ...] = ()
    problems: Mapping[str, str] = {}


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """How a wait ended.

    Attributes:
        end: Why.
        finished: Who of those waited for is active no more.
        active: Who still is.
        reason: A sentence, where there is more to say.
    """

    end: WaitEnd
    finished: tuple[Identity, ...] = ()
    active: tuple[Identity, ...] = ()
    reason: str = ""


class WaitCore:
    """One wait.

    Args:
        mode: What ends it.
        stop_on_attention: Whether work that is only quiet ends it. Work that waits for a human always does.
    """

    def __init__(self, mode: WaitMode, *, stop_on_attention: bool = True) -> None:
        self._mode = mode
        self._stop_on_attention = stop_on_attention
        self._awaited: frozenset[Identity] = frozenset()

    @property
    def awaited(self) -> frozenset[Identity]:
        """Who is waited for."""
        return self._awaited

    def begin(self, snapshot: Snapshot, *, named: Identity | None = None) -> Verdict | None:
        """Take the identities. Returns the verdict where there is nothing to wait for.

        Args:
            snapshot: What is there.
            named: The one, in mode ``id``.
        """
        if named is not None:
            self._awaited = frozenset({named})
        else:
            if snapshot.problems:
                return self._unconfirmed(snapshot.problems)
            self._awaited = frozenset(item.identity for item in snapshot.items if item.is_active)
        verdict = self.look(snapshot)
        if verdict is not None and verdict.end is WaitEnd.COMPLETED:
            return msgspec.structs.replace(verdict, end=WaitEnd.NOTHING)
        return verdict or (None if self._awaited else Verdict(end=WaitEnd.NOTHING))

    def look(self, snapshot: Snapshot) -> Verdict | None:
        """Judge a snapshot; None is: go on waiting."""
        mine = {identity.provider for identity in self._awaited}
        problems = {name: why for name, why in snapshot.problems.items() if name in mine}
        if problems:
            return self._unconfirmed(problems)
        items = {item.identity: item for item in snapshot.items if item.identity in self._awaited}
        vanished = sorted(self._awaited - items.keys())
        if vanished:
            names = ", ".join(each.item for each in vanished)
            return self._verdict(WaitEnd.UNCONFIRMED, items, f"{names}: it is gone, so its end cannot be confirmed.")
        finished = [each for each, item in items.items() if not item.is_active]
        if finished and (self._mode is WaitMode.FIRST or len(finished) == len(items)):
            return self._verdict(WaitEnd.COMPLETED, items, "")
        for identity, item in sorted(items.items()):
            if item.is_active and item.attention and (self._stop_on_attention or item.must_stop):
                return self._verdict(WaitEnd.ATTENTION, items, f"{identity.item}: {item.attention}")
        return None

    def give_up(self, end: WaitEnd, snapshot: Snapshot) -> Verdict:
        """Return the verdict of a wait that ends for the waiter's own reasons: its time, or its abort."""
        items = {item.identity: item for item in snapshot.items if item.identity in self._awaited}
        return self._verdict(end, items, "The work goes on.")

    def _verdict(self, end: WaitEnd, items: Mapping[Identity, Item], reason: str) -> Verdict:
        return Verdict(
            end=end,
            finished=tuple(sorted(each for each, item in items.items() if not item.is_active)),
            active=tuple(sorted(each for each, item in items.items() if item.is_active)),
            reason=reason,
        )

    def _unconfirmed(self, problems: Mapping[str, str]) -> Verdict:
        reason = "; ".join(f"provider {name}: {why}" for name, why in sorted(problems.items()))
        return Verdict(end=WaitEnd.UNCONFIRMED, active=tuple(sorted(self._awaited)), reason=reason)


def pick_id(text: str, known: Sequence[str]) -> str:
    """Return the id that a text means among those of a session: itself, else the only one that it begins.

    Raises:
        UnknownRunError: None.
        AmbiguousIdError: Several.
    """
    if text in known:
        return text
    fits = sorted(each for each in known if text and each.startswith(text))
    if not fits:
        raise UnknownRunError(f"No run of this session is, or begins with, {text[:40]!a}.")
    if len(fits) > 1:
        raise AmbiguousIdError(f"{text} begins {len(fits)} runs: {', '.join(fits[:8])}.", candidates=tuple(fits[:8]))
    return fits[0]
