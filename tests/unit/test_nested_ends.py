"""Who gets the end of a run below a run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pisub.hosting.nested import Whose, whose_end
from pisub.protocol.runs import RunState
from pisub.record.atomic import encode_record, write_new
from pisub.record.layout import Layout
from pisub.record.model import RunResult
from pisub.record.sessions import completion_of
from pisub.record.submit import submit_run
from pisub.runs.spec import RunSpec
from tests.support.record_samples import dead_identity, make_layout, make_result, make_spec, start


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return make_layout(tmp_path)


def family(layout: Layout) -> tuple[RunSpec, RunSpec]:
    parent = make_spec()
    child = msgspec.structs.replace(make_spec(), parent_run_id=parent.run_id, root_run_id=parent.run_id, depth=1)
    for each in (parent, child):
        submit_run(layout, each)
    return parent, child


def end(layout: Layout, spec: RunSpec, at: int, **fields: object) -> RunResult:
    result = make_result(spec)
    result = msgspec.structs.replace(result, ended_at=at, parent_run_id=spec.parent_run_id, **fields)
    write_new(layout.run(spec.run_id).result, encode_record(result), fsync=False)
    return result


def test_the_end_of_a_persons_run_is_the_hosts(layout: Layout) -> None:
    parent, _ = family(layout)
    assert whose_end(layout, completion_of(end(layout, parent, 5))) is Whose.HOST


def test_while_the_parent_goes_on_nothing_is_decided(layout: Layout) -> None:
    parent, child = family(layout)
    assert whose_end(layout, completion_of(end(layout, child, 5))) is Whose.UNDECIDED
    start(layout, parent, dead_identity())  # dead, but nobody has finished its record
    assert whose_end(layout, completion_of(end(layout, child, 5))) is Whose.UNDECIDED


@pytest.mark.parametrize(
    ("ended_at", "fields", "reason", "expected"),
    [
        (5, {}, None, Whose.PARENT),
        (6, {}, None, Whose.PARENT),
        (7, {}, None, Whose.HOST),
        (7, {"state": RunState.STOPPED}, None, Whose.HOST),
        (7, {"state": RunState.STOPPED}, "ancestor-stop", Whose.PARENT),
        (5, {"state": RunState.FAILED, "reported_by": "reconciler"}, None, Whose.HOST),
    ],
)
def test_an_end_is_the_parents_that_had_it_in_hands_and_else_the_hosts(
    layout: Layout, ended_at: int, fields: dict[str, object], reason: str | None, expected: Whose
) -> None:
    parent, child = family(layout)
    end(layout, parent, 6, **fields)
    state = RunState.COMPLETE if reason is None else RunState.STOPPED
    completion = completion_of(end(layout, child, ended_at, state=state, reason=reason))
    assert whose_end(layout, completion) is expected


def test_the_end_below_a_run_that_was_removed_is_the_hosts(layout: Layout) -> None:
    parent, child = family(layout)
    completion = completion_of(end(layout, child, 5))
    layout.run(parent.run_id).spec.unlink()
    assert whose_end(layout, completion) is Whose.HOST
