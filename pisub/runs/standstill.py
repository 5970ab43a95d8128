"""When a run's clock stands still for a question that is not its own. Pure."""

from __future__ import annotations

from collections.abc import Collection

import msgspec


class Below(msgspec.Struct, frozen=True):
    """A live run below the one that is looked at.

    Attributes:
        run_id: Which.
        is_waiting: Whether its own clock stands still for a human.
    """

    run_id: str
    is_waiting: bool


def stands_still(awaited: Collection[str], below: Collection[Below]) -> bool:
    """Tell whether a run does nothing but wait for others that wait for a human.

    Args:
        awaited: The runs that its processes wait for.
        below: Everything below it that goes on. One that works is work of this run's, whoever waits for it.
    """
    return any(each.run_id in awaited for each in below) and all(each.is_waiting for each in below)
