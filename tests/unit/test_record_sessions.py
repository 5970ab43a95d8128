from __future__ import annotations

from pathlib import Path

import pytest

from pisub.errors import InvalidArgumentError, PisubError, RecordCorruptError
from pisub.ids import new_id
from pisub.process import Liveness, liveness, own_identity
from pisub.protocol.runs import RunState
from pisub.record.layout import Layout
from pisub.record.model import Completion
from pisub.record.results import write_result
from pisub.record.sessions import (
    Delivery,
    Outbox,
    claim_host_record,
    completion_of,
    last_host,
    post_completion,
)
from tests.support.record_samples import SESSION, dead_identity, files_of, make_layout, make_result, make_spec, submit


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return make_layout(tmp_path)


@pytest.fixture
def completion(layout: Layout) -> Completion:
    completion = completion_of(make_result(make_spec()))
    assert post_completion(layout, completion)
    return completion


def test_an_end_is_posted_once_and_delivered_once(layout: Layout, completion: Completion) -> None:
    outbox = Outbox(layout, SESSION)
    assert (post_completion(layout, completion), outbox.pending()) == (False, [completion])
    assert outbox.take(completion, "g1") == Delivery(completion=completion, redelivered=False)
    assert outbox.take(completion, "g1") is None, "the second route of one host"
    assert outbox.pending() == [completion], "taken is not done"
    assert [outbox.done(completion), outbox.done(completion)] == [True, False]
    assert (outbox.pending(), outbox.take(completion, "g2")) == ([], None)


def test_an_end_that_is_done_cannot_come_back(layout: Layout, completion: Completion) -> None:
    outbox = Outbox(layout, SESSION)
    outbox.take(completion, "g1")
    outbox.done(completion)
    assert post_completion(layout, completion) is False
    before = files_of(layout.session(SESSION).completions)
    # A poster that looked before it was done, and linked after.
    (layout.session(SESSION).completions / f"{completion.run_id}.complete.json").write_bytes(b"stale")
    assert (outbox.pending(), outbox.take(completion, "g2")) == ([], None)
    assert files_of(layout.session(SESSION).completions) == before, "and what it left is cleared away"


def test_what_a_dead_host_took_goes_to_the_next_with_the_flag_and_the_same_key(
    layout: Layout, completion: Completion
) -> None:
    Outbox(layout, SESSION).take(completion, "g1")
    successor = Outbox(layout, SESSION)
    delivery = successor.take(successor.pending()[0], "g2")
    assert delivery == Delivery(completion=completion, redelivered=True)
    assert delivery is not None
    assert delivery.delivery_key == f"{completion.run_id}:complete"


def test_two_ends_of_one_run_are_two_deliveries(layout: Layout) -> None:
    spec = make_spec()
    ends = [completion_of(make_result(spec, state=state)) for state in (RunState.PAUSED, RunState.COMPLETE)]
    assert [post_completion(layout, each) for each in ends] == [True, True]
    assert {each.delivery_key for each in Outbox(layout, SESSION).pending()} == {each.delivery_key for each in ends}


def test_a_session_sees_only_its_own_ends(layout: Layout, completion: Completion) -> None:
    assert Outbox(layout, "another session").pending() == []


def test_one_bad_end_hides_no_other(layout: Layout, completion: Completion) -> None:
    bad = f"{new_id()}.failed.json"
    (layout.session(SESSION).completions / bad).write_bytes(b'{\n  "x": 1\n}\n')
    problems: list[tuple[str, type[PisubError]]] = []
    found = Outbox(layout, SESSION).pending(on_problem=lambda name, error: problems.append((name, type(error))))
    assert (found, problems) == ([completion], [(bad, RecordCorruptError)])


def test_an_end_that_a_power_cut_tore_is_made_again_from_the_result(layout: Layout) -> None:
    spec = submit(layout)
    result = make_result(spec)
    write_result(layout.run(spec.run_id), result)
    post_completion(layout, completion_of(result))
    (layout.session(SESSION).completions / f"{spec.run_id}.complete.json").write_bytes(b"")
    assert Outbox(layout, SESSION).pending() == [completion_of(result)]


def test_the_outbox_does_not_grow_with_what_was_delivered(layout: Layout) -> None:
    outbox = Outbox(layout, SESSION)
    for _ in range(20):
        completion = completion_of(make_result(make_spec()))
        post_completion(layout, completion)
        outbox.take(completion, "g1")
        outbox.done(completion)
    assert [path.name for path in layout.session(SESSION).completions.iterdir()] == ["done"]


@pytest.mark.parametrize("generation", ["", "../x", "a.b", "x" * 97, "a\n"])
def test_a_generation_that_could_be_a_path_is_refused(layout: Layout, completion: Completion, generation: str) -> None:
    with pytest.raises(InvalidArgumentError):
        Outbox(layout, SESSION).take(completion, generation)


def test_hosts_are_numbered_upwards_and_the_last_is_known(layout: Layout) -> None:
    assert last_host(layout, SESSION) is None
    assert [claim_host_record(layout, SESSION, each) for each in (dead_identity(), own_identity())] == [1, 2]
    assert last_host(layout, SESSION) == (2, own_identity())
    assert last_host(layout, "another session") is None
    for number in range(3, 12):
        assert claim_host_record(layout, SESSION, dead_identity()) == number
    assert last_host(layout, SESSION) == (11, dead_identity())


def test_a_host_whose_file_a_power_cut_tore_is_dead_and_its_number_is_kept(layout: Layout) -> None:
    claim_host_record(layout, SESSION, own_identity())
    layout.session(SESSION).host(1).write_bytes(b"")
    found = last_host(layout, SESSION)
    assert found is not None
    assert (found[0], liveness(found[1]), claim_host_record(layout, SESSION, own_identity())) == (1, Liveness.DEAD, 2)
