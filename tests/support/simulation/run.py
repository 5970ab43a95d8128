"""Many histories, and one that failed: counted, shrunk, printed."""

from __future__ import annotations

import gc
import time
import traceback

import msgspec

from .world import World

#: A history is a cycle of some thousand objects: to look for such after every 700 costs a fifth of the time.
_GARBAGE = 100_000


class Failed(msgspec.Struct, frozen=True):
    """A history that broke a promise, with the fewest steps that still do."""

    seed: int
    steps: int
    why: str

    def __str__(self) -> str:
        return f"{self.why}\nreplay: python -m tests.support.simulation {self.seed} --steps {self.steps}"


class Histories(msgspec.Struct, frozen=True):
    """What came of many."""

    count: int
    elapsed_s: float
    failed: Failed | None

    @property
    def per_s(self) -> float:
        return self.count / self.elapsed_s


def play(seed: int, *, steps: int | None = None) -> Failed | None:
    """Play one history; whatever it raises is its failure."""
    world = World(seed, steps=steps)
    try:
        world.run()
    except Exception as error:  # noqa: BLE001  # a core that raises is what is looked for
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Failed(seed, world.steps, f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})")
    return None


def shrink(failed: Failed) -> Failed:
    """Find the shortest beginning of a history after which the same way of settling still shows a failure."""
    for steps in range(failed.steps):
        shorter = play(failed.seed, steps=steps)
        if shorter is not None:
            return shorter
    return failed


def play_many(seeds: range, *, steps: int | None = None, within_s: float | None = None) -> Histories:
    """Play histories until one fails, or the time is over. ``steps`` as for a World."""
    began = time.perf_counter()
    count = 0
    failed = None
    before = gc.get_threshold()
    gc.set_threshold(_GARBAGE)
    try:
        for seed in seeds:
            count += 1
            failed = play(seed, steps=steps)
            if failed is not None or (within_s is not None and time.perf_counter() - began > within_s):
                break
    finally:
        gc.set_threshold(*before)
    elapsed_s = time.perf_counter() - began
    return Histories(count, elapsed_s, None if failed is None else shrink(failed))


def transcript(seed: int, *, steps: int | None = None) -> tuple[list[str], Failed | None]:
    """Play one history and return every line of it."""
    world = World(seed, steps=steps, is_told=True)
    try:
        world.run()
    except Exception as error:  # noqa: BLE001  # as above; the traceback belongs to the transcript
        lines = traceback.format_exc().splitlines()
        return [*(world.transcript or ()), *lines], Failed(seed, world.steps, f"{type(error).__name__}: {error}")
    return world.transcript or [], None
