"""The agent of the launch benchmark: it says when it was reached."""

from __future__ import annotations

import time

from pisub.child import Child


async def agent(child: Child) -> str:
    """Return the monotonic clock, which all processes of a machine share."""
    del child
    return str(time.monotonic_ns())
