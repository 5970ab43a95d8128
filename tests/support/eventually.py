"""The only wait of the tests: for an event, with a bound that only a hang reaches."""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: A hang guard, not a measure: two shared cores can stall a process for seconds.
HANG_S = 30.0


def eventually(check: Callable[[], T], *, what: str = "", within_s: float = HANG_S) -> T:
    """Return the first truthy value of ``check``; fail when a hang guard runs out."""
    end = time.monotonic() + within_s
    pause = 0.002
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"never happened within {within_s} s: {what or check}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)


async def eventually_async(check: Callable[[], T], *, what: str = "", within_s: float = HANG_S) -> T:
    """``eventually`` for a test that runs in an event loop."""
    end = time.monotonic() + within_s
    pause = 0.002
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"never happened within {within_s} s: {what or check}")
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, 0.1)


def wait_for_descriptor(descriptor: int, within_s: float = HANG_S) -> bool:
    """Wait until a descriptor (a pidfd, a pipe) is readable; False when it is not in time."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(within_s * 1000))
