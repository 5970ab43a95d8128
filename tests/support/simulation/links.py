"""One connection: two pipes that keep order and hold few messages, and what becomes of them when it breaks."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

#: Who there may be: few, so that they meet.
ADDRESSES = ("a", "b", "c")


class Pipes:
    """A connection between one client and one broker. ``owner`` is the client, as ``nodes`` knows it."""

    __slots__ = ("capacity", "down", "is_accepted", "is_open", "owner", "route", "up")

    def __init__(self, owner: Any, number: int, capacity: int) -> None:
        self.owner = owner
        self.route = b"\0" + number.to_bytes(4, "big")
        self.capacity = capacity
        self.up: deque[bytes] = deque()
        self.down: deque[tuple[bytes, bytes]] = deque()
        self.is_open = True
        self.is_accepted = False

    def has_room_up(self) -> bool:
        return self.is_open and len(self.up) < self.capacity

    def has_room_down(self) -> bool:
        return self.is_open and len(self.down) < self.capacity

    def break_(self, random: Random, *, keeps_down: bool) -> None:
        """End it: of what was on its way up, and where ``keeps_down`` down, only the first few were written."""
        self.is_open = False
        _cut(self.up, random)
        if keeps_down:
            _cut(self.down, random)
        else:
            self.down.clear()


def _cut(pipe: deque[Any], random: Random) -> None:
    for _ in range(len(pipe) - random.randint(0, len(pipe)) if pipe else 0):
        pipe.pop()
