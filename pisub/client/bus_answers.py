"""What a callee remembers of calls it got, and what a caller has to tell it. Pure: time is an argument.

A call comes again after a reconnect, with the same id. It must not be carried out again: the answer that was given is
given again. The caller says which answers arrived; until then, or until a bound, they are kept.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final

from pisub.protocol.limits import KEEP_ANSWER_S, MAX_KEPT_ANSWERS, MIB

#: A call as a callee knows it: the caller's address, its incarnation, the message id.
CallKey = tuple[str, int, int]

#: Answers kept, in bytes: 4,096 of the usual 300 bytes are 1.2 MiB, and 4,096 of the largest would be 1 GiB.
MAX_KEPT_BYTES: Final = 16 * MIB
#: Arrived answers are reported to their callee when there are this many, or after ``ACKNOWLEDGE_AFTER_S``: one
#: message for each would be half as many messages again.
ACKNOWLEDGE_COUNT: Final = 512
ACKNOWLEDGE_AFTER_S: Final = 1.0


class Seen(enum.Enum):
    """What is known of a call that comes in, where there is no answer yet."""

    NEW = "new"
    RUNNING = "running"


class AnswerCache:
    """The calls of all callers: those being worked on, and the answers given."""

    def __init__(self, *, max_answers: int = MAX_KEPT_ANSWERS, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self._running: dict[CallKey, float | None] = {}
        self._kept: OrderedDict[CallKey, tuple[float | None, bytes]] = OrderedDict()
        self._bytes = 0
        self._max_answers = max_answers
        self._max_bytes = max_bytes

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def running(self) -> int:
        """Calls that were begun and have no answer yet."""
        return len(self._running)

    def begin(self, key: CallKey, *, ttl_ms: int, now: float) -> Seen | bytes:
        """Register a call. Return the stored answer of a repeat, or whether the call is new or still running."""
        kept = self._kept.get(key)
        if kept is not None:
            return kept[1]
        if key in self._running:
            return Seen.RUNNING
        self._running[key] = now + ttl_ms / 1000 + KEEP_ANSWER_S if ttl_ms else None
        return Seen.NEW

    def finish(self, key: CallKey, answer: bytes, *, now: float) -> None:
        """Keep the answer of a call that ``begin`` called new."""
        kept = self._kept
        kept[key] = (self._running.pop(key, None), answer)
        self._bytes += len(answer)
        while len(kept) > self._max_answers or self._bytes > self._max_bytes or _is_stale(kept, now):
            _, (_, oldest) = kept.popitem(last=False)
            self._bytes -= len(oldest)

    def forget(self, address: str, incarnation: int, message_ids: Iterable[int]) -> None:
        """Drop answers that arrived. Unknown ids are ignored."""
        for message_id in message_ids:
            kept = self._kept.pop((address, incarnation, message_id), None)
            if kept is not None:
                self._bytes -= len(kept[1])


def _is_stale(kept: OrderedDict[CallKey, tuple[float | None, bytes]], now: float) -> bool:
    if not kept:
        return False
    expires_at = next(iter(kept.values()))[0]
    return expires_at is not None and expires_at <= now


class Acknowledgements:
    """Which answers arrived and were not reported yet, by callee."""

    def __init__(self, *, count: int = ACKNOWLEDGE_COUNT, after_s: float = ACKNOWLEDGE_AFTER_S) -> None:
        self._arrived: dict[tuple[str, int], list[int]] = {}
        self._count = count
        self._after_s = after_s
        self._due_at: float | None = None

    @property
    def due_at(self) -> float | None:
        """When ``take_all`` is due; None when nothing waits."""
        return self._due_at

    def add(self, address: str, incarnation: int, message_id: int, *, now: float) -> list[int] | None:
        """Note an arrived answer. Return the ids to report at once, when there are enough of them."""
        key = (address, incarnation)
        ids = self._arrived.get(key)
        if ids is None:
            ids = self._arrived[key] = []
            if self._due_at is None:
                self._due_at = now + self._after_s
        ids.append(message_id)
        if len(ids) < self._count:
            return None
        del self._arrived[key]
        if not self._arrived:
            self._due_at = None
        return ids

    def take_all(self) -> Iterator[tuple[str, int, list[int]]]:
        """Remove everything that waits; yield address, incarnation and ids."""
        arrived, self._arrived = self._arrived, {}
        self._due_at = None
        for (address, incarnation), ids in arrived.items():
            yield address, incarnation, ids
