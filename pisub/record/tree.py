"""Which runs are below a run: one directory in the first run of a tree names all that were ever started in it.

A marker is made before the run's spec, so that whoever ends a run and then looks finds everything below it. One without
a spec means nothing: its submission was cut off. Who is whose parent is in the specs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

from pisub.errors import PisubError
from pisub.ids import is_id
from pisub.record.atomic import exists, read_record, remove, write_new
from pisub.record.dirs import list_names, make_dir
from pisub.record.layout import Layout
from pisub.record.tombstones import tombstone
from pisub.runs.spec import RunSpec

#: Ends the marker of a run that goes on with another one of the tree: it is not counted again.
_RESUMED = ".resumed"
#: Longer than any chain of parents can be; a damaged record could have a ring.
_MAX_CHAIN = 1_000

OnProblem = Callable[[str, PisubError | OSError], None]


def _ignore(_run_id: str, _error: PisubError | OSError) -> None:
    """Pass over what cannot be read."""


def root_of(spec: RunSpec) -> str:
    """Return the first run of the tree that a run is in: itself, or the one far above it."""
    return spec.root_run_id or spec.run_id


def note_in_tree(layout: Layout, spec: RunSpec) -> None:
    """Name a run in its tree; idempotent. Nothing to do for a first run, and where the first run was removed.

    Raises:
        OSError: The disk is full, or the like.
    """
    if spec.root_run_id is None:
        return
    tree = layout.run(spec.root_run_id).tree
    with contextlib.suppress(FileNotFoundError):  # removed as old: nobody is left who could end it
        make_dir(tree)
        write_new(tree / _name(spec), b"", fsync=False)


def forget_in_tree(layout: Layout, spec: RunSpec) -> None:
    """Take the name of a run that was not submitted out of its tree again."""
    if spec.root_run_id is not None:
        remove(layout.run(spec.root_run_id).tree / _name(spec))


def count_charged(layout: Layout, root_run_id: str) -> int:
    """Return how many runs were ever started below a first run, those that go on with another one left out."""
    return sum(is_id(name) for name in list_names(layout.run(root_run_id).tree))


def drop_unsubmitted(layout: Layout, root_run_id: str) -> None:
    """Remove the names that killed submitters left. The caller keeps others from submitting meanwhile."""
    tree = layout.run(root_run_id).tree
    for name in filter(is_id, list_names(tree)):
        if was_never_submitted(layout, name):
            remove(tree / name)


def was_never_submitted(layout: Layout, run_id: str) -> bool:
    """Tell whether a run that somebody was about to submit does not exist, and was not removed as old either."""
    return not exists(layout.run(run_id).spec) and not exists(tombstone(layout, run_id))


def descendants(layout: Layout, run_id: str, *, on_problem: OnProblem = _ignore) -> list[RunSpec]:
    """Return what is below a run, oldest first: its children and theirs. Reads each run of its tree.

    Args:
        layout: The record.
        run_id: The run; one that does not exist has none.
        on_problem: Told the id and the error of each run of the tree that cannot be read. It hides no other.

    Raises:
        RecordError: The run's own spec, or the tree's directory, cannot be read.
    """
    spec = read_record(layout.run(run_id).spec, RunSpec)
    if spec is None:
        return []
    members = list(_members(layout, root_of(spec), on_problem))
    if spec.root_run_id is None:
        return members  # also those whose parent cannot be read
    below = {run_id}
    # A child's id is younger than its parent's, except where a clock was set back: repeat until nothing is added.
    while more := {each.run_id for each in members if each.parent_run_id in below and each.run_id not in below}:
        below |= more
    return [each for each in members if each.run_id in below and each.run_id != run_id]


def children(specs: Iterable[RunSpec], run_id: str) -> list[RunSpec]:
    """Return those of some runs whose parent is ``run_id``."""
    return [each for each in specs if each.parent_run_id == run_id]


def is_below(layout: Layout, run_id: str, above: str) -> bool:
    """Tell whether a run was started by another one, or by one below that one. A run is not below itself."""
    for _ in range(_MAX_CHAIN):
        spec = read_record(layout.run(run_id).spec, RunSpec)
        if spec is None or spec.parent_run_id is None:
            return False
        run_id = spec.parent_run_id
        if run_id == above:
            return True
    return False


def _members(layout: Layout, root_run_id: str, on_problem: OnProblem) -> Iterator[RunSpec]:
    names = (name.removesuffix(_RESUMED) for name in list_names(layout.run(root_run_id).tree))
    for name in sorted(filter(is_id, names)):
        try:
            spec = read_record(layout.run(name).spec, RunSpec)
        except (PisubError, OSError) as error:
            on_problem(name, error)
            continue
        if spec is not None:
            yield spec


def _name(spec: RunSpec) -> str:
    return spec.run_id if spec.resumed_from is None else spec.run_id + _RESUMED
