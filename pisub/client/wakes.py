"""What wakes somebody who waits for a run: its messages, the end of its process, or a slow timer.

A wake says "read the files again" and nothing more; a missed one costs the timer's period, never an event.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from types import TracebackType
from typing import Self

from pisub.client.bus import Bus, Incoming, Unsubscriber
from pisub.process import ProcessIdentity, open_pidfd
from pisub.protocol.runs import ASYNC_COMPLETE_TOPIC, progress_topic


class Wakes:
    """An async context manager around one waiting reader of one run."""

    def __init__(self, run_id: str, *, bus: Bus | None, reread_s: float) -> None:
        self._topics = (progress_topic(run_id), ASYNC_COMPLETE_TOPIC)
        self._run_id = run_id.encode()
        self._bus = bus
        self._reread_s = reread_s
        self._event = asyncio.Event()
        self._unsubscribers: list[Unsubscriber] = []
        self._watched: ProcessIdentity | None = None
        self._pidfd: int | None = None

    async def __aenter__(self) -> Self:
        """Subscribe. What happens from here on wakes."""
        if self._bus is not None:
            for topic in self._topics:
                self._unsubscribers.append(await self._bus.subscribe(topic, self._on_message))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give everything back."""
        self._close_pidfd()
        for unsubscribe in self._unsubscribers:
            unsubscribe()

    def watch(self, process: ProcessIdentity | None) -> None:
        """Wake at the end of this process too. Where the kernel cannot tell, the timer does."""
        if process is None or process == self._watched:
            return
        self._watched = process
        self._close_pidfd()
        with contextlib.suppress(OSError):
            self._pidfd = open_pidfd(process)
        if self._pidfd is not None:
            asyncio.get_running_loop().add_reader(self._pidfd, self._on_exit)

    async def wait(self, at_most_s: float | None = None) -> None:
        """Return at the next wake, or after the timer's period, or after ``at_most_s``."""
        limit = self._reread_s if at_most_s is None else min(self._reread_s, at_most_s)
        # Not wait_for: before Python 3.12 it loses a cancellation that comes in the turn of the event.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await self._event.wait()
        self._event.clear()

    def _on_message(self, message: Incoming) -> None:
        # Every run's end is published on one topic: who waits for one run of hundreds reads no file for the others.
        if self._run_id in message.body:
            self._event.set()

    def _on_exit(self) -> None:
        # Readable once and for ever: it must not wake the loop again.
        self._close_pidfd()
        self._event.set()

    def _close_pidfd(self) -> None:
        if self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
