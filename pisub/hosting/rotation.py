"""The order in which waiting batches get their turn: round robin over sessions, in them trees, in them runs."""

from __future__ import annotations

from collections import deque
from typing import Generic, Protocol, TypeVar


class Waiting(Protocol):
    """What the rotation must know of what waits."""

    @property
    def session_id(self) -> str:
        """First level of fairness."""
        ...

    @property
    def tree_id(self) -> str:
        """Second level of fairness: the first run above it, or itself."""
        ...

    @property
    def run_id(self) -> str:
        """Third level of fairness."""
        ...


W = TypeVar("W", bound=Waiting)


class Rotation(Generic[W]):
    """A fair queue. Adding and taking cost the same however many wait.

    A session (and in it a tree, and in that a run) that was served, or that is new, goes behind all others of its
    level: whoever asks much delays itself, and whoever starts many that ask delays them.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, dict[str, dict[str, deque[W]]]] = {}
        self._count = 0

    def __len__(self) -> int:
        """Return how many wait."""
        return self._count

    def add(self, item: W) -> None:
        """Put an item behind those of its run."""
        trees = self._sessions.setdefault(item.session_id, {})
        trees.setdefault(item.tree_id, {}).setdefault(item.run_id, deque()).append(item)
        self._count += 1

    def take(self) -> W:
        """Remove and return the item whose turn it is.

        Raises:
            LookupError: Nothing waits.
        """
        if not self._count:
            raise LookupError("nothing waits")
        session_id = next(iter(self._sessions))
        trees = self._sessions.pop(session_id)
        tree_id = next(iter(trees))
        runs = trees.pop(tree_id)
        run_id = next(iter(runs))
        items = runs.pop(run_id)
        item = items.popleft()
        self._count -= 1
        if items:
            runs[run_id] = items
        if runs:
            trees[tree_id] = runs
        if trees:
            self._sessions[session_id] = trees
        return item

    def discard(self, item: W) -> None:
        """Remove an item, wherever it waits; nothing happens if it does not."""
        trees = self._sessions.get(item.session_id, {})
        runs = trees.get(item.tree_id, {})
        items = runs.get(item.run_id)
        if items is None or item not in items:
            return
        items.remove(item)
        self._count -= 1
        if not items:
            del runs[item.run_id]
        if not runs:
            del trees[item.tree_id]
        if not trees:
            del self._sessions[item.session_id]

    def clear(self) -> None:
        """Remove everything."""
        self._sessions.clear()
        self._count = 0
