"""What a nursery is composed of: what its runners do, and what follows their end."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pisub.config import Settings

from .child import Entry
from .reaper import Death


class Parts(msgspec.Struct, frozen=True):
    """The two things that are forked.

    Attributes:
        entry: What a runner does, after its process was made like one of its caller's.
        autopsy: What a coroner does, in a process of its own.
    """

    entry: Entry
    autopsy: Callable[[Death, Settings], None]


def load_parts() -> Parts:
    """Import all that a runner needs, so that its forks need not."""
    from ..app import run  # noqa: PLC0415, TID252  # the import is what is asked for
    from .coroner import examine  # noqa: PLC0415  # as above

    return Parts(run, examine)
