"""Caps against a naive model that counts in a set: whatever is submitted, cut off, ended, resumed, granted."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pisub.errors import CapReachedError, InvalidArgumentError
from pisub.ids import new_id
from pisub.process import own_identity
from pisub.protocol.runs import RunState
from pisub.record.caps import (
    ACTIVE_RUN_LIMIT,
    RUN_FANOUT_LIMIT,
    SESSION_SPAWN_LIMIT,
    Caps,
    admission,
    count_active,
    grant_spawns,
    session_budget,
    tree_budget,
)
from pisub.record.layout import Layout
from pisub.record.submit import submit_run
from pisub.runs.reconcile import reconcile
from pisub.runs.spec import RunSpec
from tests.support.record_samples import NOW_MS, SESSION, make_spec


class KilledError(Exception):
    """The submitter dies here."""


def batch_of(size: int, parent: RunSpec | None = None, **fields: Any) -> list[RunSpec]:
    place = {} if parent is None else {"parent_run_id": parent.run_id, "root_run_id": parent.run_id, "depth": 1}
    return [msgspec.structs.replace(make_spec(), **{**place, **fields}) for _ in range(size)]


def submit(layout: Layout, batch: list[RunSpec], caps: Caps, *, cut_after: int | None = None) -> None:
    """Submit a batch; ``cut_after`` so many an error ends it."""
    with admission(layout, batch, caps, paths=[f"tasks[{number}]" for number in range(len(batch))]):
        for number, spec in enumerate(batch):
            if number == cut_after:
                raise KilledError
            submit_run(layout, spec)


def end(layout: Layout, run_id: str) -> None:
    assert reconcile(layout, run_id, now_ms=NOW_MS, launch_error="It ends.").state is RunState.FAILED


OPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(1, 4), st.none()),
        st.tuples(st.just("submit"), st.integers(1, 4), st.integers(0, 3)),
        st.tuples(st.just("grant"), st.integers(-1, 5), st.none()),
        st.tuples(st.just("end"), st.integers(0, 9), st.none()),
    ),
    max_size=14,
)


@settings(max_examples=60, deadline=None)  # files: a busy machine takes its time
@given(st.integers(0, 6), st.integers(0, 5), OPS)
def test_a_session_never_has_more_than_its_caps_and_never_less_than_they_allow(
    per_session: int, active: int, ops: list[tuple[str, int, int | None]]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        layout = Layout(Path(directory) / "home", fsync=False)
        layout.prepare()
        caps = Caps(per_session=per_session, active=active)
        spent, alive, granted = 0, list[str](), 0
        for op, number, cut_after in ops:
            match op:
                case "submit":
                    batch = batch_of(number)
                    fits = (not per_session or spent + number <= per_session + granted) and (
                        not active or len(alive) + number <= active
                    )
                    cut = cut_after if cut_after is not None and cut_after < number else None
                    if not fits:
                        with pytest.raises(CapReachedError):
                            submit(layout, batch, caps)
                        assert not any(layout.run(each.run_id).spec.exists() for each in batch)
                    elif cut is not None:
                        with pytest.raises(KilledError):
                            submit(layout, batch, caps, cut_after=cut)
                        spent, alive = spent + cut, [*alive, *(each.run_id for each in batch[:cut])]
                    else:
                        submit(layout, batch, caps)
                        spent, alive = spent + number, [*alive, *(each.run_id for each in batch)]
                case "grant":
                    frozen = layout.session(SESSION).caps.exists() and bool(per_session)
                    if frozen and 1 <= number <= per_session - granted:
                        grant_spawns(layout, SESSION, number, now_ms=NOW_MS, by=own_identity())
                        granted += number
                    elif frozen:
                        with pytest.raises(InvalidArgumentError):
                            grant_spawns(layout, SESSION, number, now_ms=NOW_MS, by=own_identity())
                case _ if alive:
                    end(layout, alive.pop(number % len(alive)))
                case _:
                    pass
            assert count_active(layout, SESSION) == len(alive)
            if per_session and layout.session(SESSION).caps.exists():
                budget = session_budget(layout, SESSION)
                assert (budget.used, budget.limit, budget.granted) == (spent, per_session + granted, granted)


@settings(max_examples=40, deadline=None)  # likewise
@given(st.integers(1, 6), st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.booleans()), max_size=8))
def test_a_tree_is_charged_for_every_run_once_and_never_refunded(
    limit: int, batches: list[tuple[int, bool, bool]]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        layout = Layout(Path(directory) / "home", fsync=False)
        layout.prepare()
        (root,) = batch_of(1, max_spawns_per_run=limit)
        submit(layout, [root], Caps())
        spent = 0
        for size, is_ended, is_resumed in batches:
            batch = batch_of(size, root)
            if spent + size > limit:
                with pytest.raises(CapReachedError) as refused:
                    submit(layout, batch, Caps())
                assert (refused.value.code, refused.value.used, refused.value.limit, refused.value.path) == (
                    RUN_FANOUT_LIMIT,
                    spent,
                    limit,
                    f"tasks[{limit - spent}]",
                )
                continue
            submit(layout, batch, Caps())
            submit(layout, batch, Caps())  # the same requests again are the same runs
            spent += size
            if is_ended:
                end(layout, batch[0].run_id)
            if is_resumed:
                submit_run(layout, msgspec.structs.replace(batch[0], run_id=new_id(), resumed_from=batch[0].run_id))
            assert tree_budget(layout, root).used == spent


def test_the_errors_of_the_two_session_caps_say_how_much_is_used_and_of_what(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "home", fsync=False)
    layout.prepare()
    submit(layout, batch_of(2), Caps(per_session=3))
    for caps, code, used, limit in (
        (Caps(per_session=3), SESSION_SPAWN_LIMIT, 2, 3),
        (Caps(per_session=9), SESSION_SPAWN_LIMIT, 2, 3),  # frozen by the first submission
        (Caps(active=2), SESSION_SPAWN_LIMIT, 2, 3),
    ):
        with pytest.raises(CapReachedError) as refused:
            submit(layout, batch_of(2), caps)
        found = refused.value
        assert (found.code, found.used, found.limit, found.path) == (code, used, limit, "tasks[1]")
    with pytest.raises(CapReachedError) as refused:
        submit(layout, batch_of(1), Caps(active=2))
    assert (refused.value.code, refused.value.used, refused.value.limit) == (ACTIVE_RUN_LIMIT, 2, 2)


def test_attached_and_nested_runs_take_no_place_among_the_active_ones(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "home", fsync=False)
    layout.prepare()
    (root,) = batch_of(1)
    caps = Caps(active=1)
    submit(layout, [root], caps)
    submit(layout, batch_of(2, attached_to=own_identity()), caps)
    submit(layout, batch_of(2, root), caps)
    assert count_active(layout, SESSION) == 1
    with pytest.raises(CapReachedError):
        submit(layout, batch_of(1), caps)
    end(layout, root.run_id)
    submit(layout, batch_of(1), caps)


def test_what_cannot_be_read_counts_as_active(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "home", fsync=False)
    layout.prepare()
    (spec,) = batch_of(1)
    submit(layout, [spec], Caps())
    layout.run(spec.run_id).spec.write_bytes(b"{")
    assert count_active(layout, SESSION) == 1


def test_a_session_without_a_cap_at_its_first_run_has_none_for_ever(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "home", fsync=False)
    layout.prepare()
    submit(layout, batch_of(2), Caps())
    submit(layout, batch_of(4), Caps(per_session=1))
    assert session_budget(layout, SESSION).limit is None


def test_the_latest_twenty_grants_are_kept_and_their_sum_stays(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "home", fsync=False)
    layout.prepare()
    submit(layout, batch_of(1), Caps(per_session=30))
    for _ in range(25):
        grant_spawns(layout, SESSION, 1, now_ms=NOW_MS, by=own_identity())
    budget = session_budget(layout, SESSION)
    assert (budget.limit, budget.granted, [each.number for each in budget.grants]) == (55, 25, list(range(6, 26)))
