"""A wait for runs, made known to the run whose process waits: its clock may stand still for their questions."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable

from pisub.config import RUN_ID_VARIABLE, caller_environment
from pisub.ids import is_id
from pisub.record.awaits import note_await
from pisub.record.layout import Layout


@contextlib.contextmanager
def awaiting(layout: Layout, run_ids: Iterable[str]) -> Generator[None]:
    """Note the wait while the block runs: one small file. Without effect in a process that is no run's."""
    own = caller_environment().get(RUN_ID_VARIABLE, "")
    with note_await(layout.run(own), run_ids) if is_id(own) else contextlib.nullcontext():
        yield
