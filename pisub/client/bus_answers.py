"""What a callee remembers of calls it got, and what a caller has to tell it. Pure: time is an argument.

A call comes again after a reconnect, with the same id. It must not be carried out again: the answer that was given is
given again. The caller says which answers arrived; until then, or until a bound, they are kept.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Iterable
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
#: How often answers are looked through for those that outlived their time.
_LOOK_EVERY_S: Final = 1.0


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
        self._look_at = 0.0
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
        if now >= self._look_at:
            self._look_at = now + _LOOK_EVERY_S
            self._drop_stale(now)
        self._running[key] = now + ttl_ms / 1000 + KEEP_ANSWER_S if ttl_ms else None
        return Seen.NEW

    def finish(self, key: CallKey, answer: bytes) -> None:
        """Keep the answer of a call that ``begin`` called new."""
        kept = self._kept
        kept[key] = (self._running.pop(key, None), answer)
        self._bytes += len(answer)
        while len(kept) > self._max_answers or self._bytes > self._max_bytes:
            self._drop_oldest()

    def forget(self, address: str, incarnation: int, message_ids: Iterable[int]) -> None:
        """Drop answers that arrived. Unknown ids are ignored."""
        for message_id in message_ids:
            kept = self._kept.pop((address, incarnation, message_id), None)
            if kept is not None:
                self._bytes -= len(kept[1])

    def _drop_stale(self, now: float) -> None:
        """Drop from the oldest on what outlived its time; one without a deadline among them waits for the bounds."""
        while self._kept:
            expires_at = next(iter(self._kept.values()))[0]
            if expires_at is None or expires_at > now:
                return
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, (_, answer) = self._kept.popitem(last=False)
        self._bytes -= len(answer)


class Acknowledgements:
    """Which answers arrived and were not reported yet, by callee (``address@incarnation``)."""

    def __init__(self, *, count: int = ACKNOWLEDGE_COUNT, after_s: float = ACKNOWLEDGE_AFTER_S) -> None:
        self._arrived: list[tuple[str, int]] = []
        self._count = count
        self._after_s = after_s
        self._due_at: float | None = None

    @property
    def due_at(self) -> float | None:
        """When ``take_all`` is due; None when nothing waits, or nobody told the time yet."""
        return self._due_at

    def add(self, callee: str, message_id: int) -> bool:
        """Note an arrived answer. Tell whether there are enough of them to report."""
        self._arrived.append((callee, message_id))
        return len(self._arrived) >= self._count

    def tell_time(self, now: float) -> None:
        """Say what time it is, once for all that was added since the last time."""
        if self._arrived and self._due_at is None:
            self._due_at = now + self._after_s

    def take_all(self) -> dict[str, list[int]]:
        """Remove everything that waits; return the ids by callee."""
        arrived, self._arrived = self._arrived, []
        self._due_at = None
        found: dict[str, list[int]] = {}
        for callee, message_id in arrived:
            found.setdefault(callee, []).append(message_id)
        return found
