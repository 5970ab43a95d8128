"""The fleet status, line by line of the contract (runs 1.6, and 7 numbers 8 and 9)."""

from typing import Any

import msgspec
import pytest

from pisub.fleet import FleetKeys, build_fleet
from pisub.fleet.dto import Candidate, expand, fleet_of, safe_tokens
from pisub.protocol.fleet import Capacity, FleetStatus, FleetTokens
from tests.support.fleet_jobs import NOW_MS, SESSION, job, step


def agents_of(fleet: FleetStatus) -> list[str]:
    return [each.agent for each in fleet.entries]


def keys_of(fleet: FleetStatus) -> list[str]:
    return [each.key for each in fleet.entries]


def fleet(*jobs: Any, session_id: str | None = SESSION, keys: FleetKeys | None = None) -> FleetStatus:
    return build_fleet(jobs, session_id, keys or FleetKeys())


def candidate(child: str = "c", **fields: Any) -> Candidate:
    return Candidate(child=child, **{"agent": "worker", "started_at": NOW_MS, **fields})


def shown(*candidates: Candidate) -> FleetStatus:
    return fleet_of(candidates, FleetKeys(), Capacity())


def test_without_anything_every_number_is_there_and_zero() -> None:
    assert msgspec.json.encode(fleet()) == (
        b'{"version":1,"entries":[],"totalActive":0,"omitted":0,"topLevelAsyncCapacity":{"used":0,"limit":0}}'
    )


def test_an_entry_has_what_is_known_and_nothing_else() -> None:
    full = step(role="critic", model="m-1", effort="high", tokens=FleetTokens(input=1, output=2, total=3))
    entries = fleet(job("a", full, goal="look"), job("b", step(started_at=NOW_MS + 1))).entries
    assert msgspec.to_builtins(entries) == (
        {
            "key": "fleet-1",
            "agent": "worker",
            "role": "critic",
            "model": "m-1",
            "effort": "high",
            "startedAt": NOW_MS,
            "tokens": {"input": 1, "output": 2, "total": 3},
            "goal": "look",
        },
        {
            "key": "fleet-2",
            "agent": "worker",
            "startedAt": NOW_MS + 1,
            "tokens": {"input": 0, "output": 0, "total": 0},
        },
    )


def test_18_active_give_16_entries_and_2_omitted() -> None:
    found = fleet(*(job(f"r{number:02}", step()) for number in range(18)))
    assert (len(found.entries), found.total_active, found.omitted) == (16, 18, 2)


def test_foreign_and_unattributed_jobs_are_in_neither_count() -> None:
    found = fleet(job("a", step()), job("b", step(), session_id="other"), job("c", step(), session_id=""))
    assert (len(found.entries), found.total_active, found.omitted) == (1, 1, 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"agent": ""},
        {"agent": "\x1b[31m \ufeff"},
        {"agent": None},
        {"started_at": -1},
        {"started_at": 2**53},
        {"started_at": 1.5},
        {"started_at": True},
        {"started_at": "1"},
        {"started_at": None},
    ],
    ids=str,
)
def test_an_invalid_child_is_skipped_and_counted_as_omitted(fields: dict[str, Any]) -> None:
    found = shown(candidate("a"), candidate("b", **fields))
    assert (len(found.entries), found.total_active, found.omitted) == (1, 2, 1)


def test_the_largest_safe_moment_is_one() -> None:
    assert [each.started_at for each in shown(candidate(started_at=2**53 - 1), candidate(started_at=0)).entries] == [
        0,
        2**53 - 1,
    ]


def test_only_the_first_256_may_be_shown_and_all_are_counted() -> None:
    late_but_oldest = candidate("late", agent="late", started_at=0)
    found = shown(*(candidate(f"c{number:03}") for number in range(256)), late_but_oldest)
    assert (found.total_active, found.omitted) == (257, 241)
    assert "late" not in agents_of(found)


def test_foreground_comes_before_what_is_detached_where_only_so_many_are_looked_at() -> None:
    detached = [job(f"d{number:03}", step()) for number in range(256)]
    found = fleet(*detached, job("z", step(agent="front", started_at=0), is_foreground=True))
    assert found.entries[0].agent == "front"


def test_order_is_by_start_then_by_child_and_what_is_no_number_is_last() -> None:
    found = shown(
        candidate("b", agent="b"),
        candidate("x", agent="nothing", started_at=None),
        candidate("a", agent="a"),
        candidate("c", agent="first", started_at=NOW_MS - 1),
    )
    assert agents_of(found) == ["first", "a", "b"]


@pytest.mark.parametrize(
    ("field", "units"), [("agent", 96), ("role", 96), ("goal", 512), ("model", 128), ("effort", 128)]
)
def test_texts_are_bounded(field: str, units: int) -> None:
    (entry,) = shown(candidate(**{field: "x" * 600})).entries
    assert getattr(entry, field) == "x" * units


@pytest.mark.parametrize("status", ["running", "queued", "pending"])
def test_a_step_that_is_at_work_or_will_be_is_active(status: str) -> None:
    assert fleet(job("a", step(status=status))).total_active == 1


@pytest.mark.parametrize("status", ["complete", "completed", "failed", "paused", "stopped", "rejected"])
def test_a_step_that_has_ended_is_not(status: str) -> None:
    assert agents_of(fleet(job("a", step(agent="done", status=status), step(1)))) == ["worker"]


@pytest.mark.parametrize("state", ["complete", "failed", "paused", "stopped", "rejected"])
def test_a_job_that_has_ended_is_not_there(state: str) -> None:
    assert fleet(job("a", step(), state=state)) == FleetStatus()


def test_a_job_of_several_has_an_entry_for_each_step_at_work() -> None:
    assert agents_of(fleet(job("a", step(agent="x"), step(1, "y"), mode="parallel"))) == ["x", "y"]


def test_a_workflow_is_one_entry() -> None:
    assert agents_of(fleet(job("a", step(), step(1), mode="workflow"))) == ["workflow"]


def test_a_chain_shows_the_step_whose_turn_it_is() -> None:
    steps = [step(0, "x", "complete"), step(1, "y", "pending"), step(2, "z", "pending")]
    assert agents_of(fleet(job("a", *steps, mode="chain", current_step=1))) == ["y"]
    assert agents_of(fleet(job("a", *steps, mode="chain", current_step=1, is_parallel=True))) == ["y", "z"]


def test_a_job_without_steps_has_one_for_each_agent() -> None:
    queued = job("a", agents=("x", "y"), state="queued")
    assert agents_of(fleet(queued)) == ["x", "y"]


@pytest.mark.parametrize(("mode", "agent"), [("parallel", "parallel"), ("", "subagent")])
def test_a_job_without_steps_and_agents_is_one_entry_named_by_its_mode(mode: str, agent: str) -> None:
    assert agents_of(fleet(job("a", agents=(), mode=mode))) == [agent]


def test_a_foreground_job_whose_steps_have_ended_is_shown_itself() -> None:
    ended = step(agent="x", status="complete")
    assert agents_of(fleet(job("a", ended, is_foreground=True))) == ["x"]
    assert [each.agent for each in expand(job("a", ended))] == []


def test_keys_stay_while_a_child_is_active_and_are_not_given_twice() -> None:
    keys = FleetKeys()
    a, b, c = (job(name, step(agent=name)) for name in "abc")
    assert keys_of(fleet(a, b, keys=keys)) == ["fleet-1", "fleet-2"]
    assert keys_of(fleet(a, c, keys=keys)) == ["fleet-1", "fleet-3"]
    assert keys_of(fleet(a, b, c, keys=keys)) == ["fleet-1", "fleet-4", "fleet-3"]


def test_another_session_begins_at_1() -> None:
    keys = FleetKeys()
    a, b = job("a", step()), job("b", step(), session_id="B")
    assert keys_of(fleet(a, keys=keys)) == ["fleet-1"]
    assert keys_of(fleet(a, session_id="B", keys=keys)) == []
    assert keys_of(fleet(a, b, session_id="B", keys=keys)) == ["fleet-1"]


def test_without_a_session_all_is_zero_and_the_keys_are_let_go() -> None:
    keys = FleetKeys()
    assert keys_of(fleet(job("a", step()), keys=keys)) == ["fleet-1"]
    capacity = Capacity(used=1, limit=2)
    assert build_fleet([job("a", step())], None, keys, capacity) == FleetStatus()


def test_a_key_stays_with_a_child_that_is_not_shown_for_a_while() -> None:
    keys = FleetKeys()
    late = candidate("late", started_at=NOW_MS + 1)
    earlier = [candidate(f"c{number}") for number in range(16)]
    assert keys_of(fleet_of([late], keys, Capacity())) == ["fleet-1"]
    assert "fleet-1" not in keys_of(fleet_of([*earlier, late], keys, Capacity()))
    assert keys_of(fleet_of([late], keys, Capacity())) == ["fleet-1"]


@pytest.mark.parametrize(
    ("given", "counted"),
    [
        ((1, 2, 3), (1, 2, 3)),
        ((1, 2, 0), (1, 2, 3)),
        ((1, 2, 9), (1, 2, 9)),
        ((1.9, 2.9, 0), (1, 2, 3)),
        ((-1, float("nan"), float("inf")), (0, 0, 0)),
        ((True, "7", None), (0, 0, 0)),
        ((2**60, 2**60, 0), (2**53 - 1, 2**53 - 1, 2**53 - 1)),
    ],
)
def test_tokens_are_whole_safe_and_add_up(given: tuple[Any, ...], counted: tuple[int, ...]) -> None:
    tokens = FleetTokens(input=given[0], output=given[1], total=given[2])
    assert safe_tokens(tokens) == FleetTokens(input=counted[0], output=counted[1], total=counted[2])


def test_an_entry_says_no_id() -> None:
    text = msgspec.json.encode(fleet(job("run-id-1", step(run_id="run-id-2", workflow_key="k"))))
    assert b"run-id" not in text
    assert b'"k"' not in text
