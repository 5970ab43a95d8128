"""From the agent's threads to the shell's loop: a queue that never blocks its writers and has a bound.

Above the bound what only informs (lines, output, tool calls) is dropped and counted; what decides is kept.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import msgspec

from pisub.engines.base import (
    AS_CONFIGURED,
    AskCallback,
    AskTimes,
    EngineEvent,
    LogLine,
    OutputBytes,
    ToolEnded,
    ToolStarted,
)
from pisub.protocol.checkpoint import Question
from pisub.protocol.limits import KIB, MIB

_MAX_QUEUED_BYTES = 4 * MIB
_MAX_QUEUED_EVENTS = 20_000
#: A longer line is cut before it is queued: a journal line has 64 KiB, four bytes a character.
_MAX_LINE_CHARS = 8 * KIB


class AskPosted(msgspec.Struct, frozen=True):
    """The child asks."""

    number: int
    questions: tuple[Question, ...]
    why: str
    callback: AskCallback
    times: AskTimes = AS_CONFIGURED


class AskWithdrawn(msgspec.Struct, frozen=True):
    """The child takes an ask back."""

    number: int


Item = EngineEvent | AskPosted | AskWithdrawn


class Intake:
    """The queue. ``put`` is for any thread, ``take_all`` for the loop's.

    Args:
        wake: Called from the writer's thread when the queue was empty.
        max_bytes: Bound of the queued texts.
        max_events: Bound of the queued events.
    """

    def __init__(
        self, wake: Callable[[], None], *, max_bytes: int = _MAX_QUEUED_BYTES, max_events: int = _MAX_QUEUED_EVENTS
    ) -> None:
        self._wake = wake
        self._max_bytes = max_bytes
        self._max_events = max_events
        self._lock = threading.Lock()
        self._items: deque[Item] = deque()
        self._bytes = 0
        self._dropped = 0

    def put(self, item: Item) -> None:
        """Queue an item, or count it as dropped. Returns at once."""
        size = 0
        if isinstance(item, LogLine):
            if len(item.text) > _MAX_LINE_CHARS:
                item = LogLine(item.text[:_MAX_LINE_CHARS] + "…")
            size = len(item.text)
        elif isinstance(item, OutputBytes):
            size = len(item.data)
        with self._lock:
            is_full = self._bytes + size > self._max_bytes or len(self._items) >= self._max_events
            if is_full and isinstance(item, LogLine | OutputBytes | ToolStarted | ToolEnded):
                self._dropped += 1
                return
            is_first = not self._items
            self._items.append(item)
            self._bytes += size
        if is_first:
            self._wake()

    def take_all(self) -> tuple[list[Item], int]:
        """Return what is queued, oldest first, and how many were dropped since the last time."""
        with self._lock:
            items, self._items = list(self._items), deque()
            dropped, self._dropped = self._dropped, 0
            self._bytes = 0
        return items, dropped
