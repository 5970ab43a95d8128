"""The snapshot of a session's runs, line by line of the contract (runs 1.7, and 7 number 10)."""

import msgspec
import pytest

from pisub.fleet import Job, build_snapshot
from pisub.fleet.jobs import Activity
from pisub.protocol.fleet import AsyncSnapshot, SnapshotCaps, SnapshotNode, encode_json
from tests.support.fleet_jobs import NOW_MS, SESSION, job, step


def snapshot(*jobs: Job, session_id: str | None = SESSION, caps: SnapshotCaps | None = None) -> AsyncSnapshot:
    return build_snapshot(jobs, session_id, generated_at=NOW_MS, caps=caps)


def ids(found: AsyncSnapshot) -> list[str]:
    return [each.id for each in found.runs]


def depth(node: SnapshotNode) -> int:
    return 1 + max(map(depth, node.children), default=0) if node.children else 1


def test_without_runs_it_says_its_bounds() -> None:
    assert encode_json(snapshot()) == (
        b'{"kind":"pi-subagents.async-status-snapshot","version":1,"generatedAt":1800000000000,'
        b'"caps":{"maxRuns":20,"maxChildrenPerNode":8,"maxDepth":3,"maxStringLength":160,"maxSerializedBytes":32768},'
        b'"omitted":{"runs":0,"children":0,"byteLimitExceeded":false},"runs":[]}'
    )


def test_a_run_is_a_node_with_its_steps_below() -> None:
    active = Activity(state="needs_attention", current_tool="read\x1b[2J", last_activity_at=3, turn_count=4)
    found = snapshot(job("r1", step(label="first"), updated_at=NOW_MS + 5, activity=active))
    assert msgspec.to_builtins(found.runs) == (
        {
            "id": "r1",
            "kind": "subagent",
            "label": "worker",
            "state": "running",
            "startedAt": NOW_MS,
            "updatedAt": NOW_MS + 5,
            "activity": {"state": "needs_attention", "currentTool": "read", "lastActivityAt": 3, "turnCount": 4},
            "children": ({"id": "step:0", "kind": "step", "label": "first", "state": "running", "startedAt": NOW_MS},),
        },
    )


def test_newest_first_then_by_id() -> None:
    jobs = [job("b", updated_at=5), job("a", updated_at=5), job("c", updated_at=9), job("d", started_at=7)]
    nothing = job("e", started_at=None)
    assert ids(snapshot(*jobs, nothing)) == ["c", "d", "a", "b", "e"]


def test_twenty_runs_and_the_rest_is_counted() -> None:
    found = snapshot(*(job(f"r{number:02}", updated_at=100 - number) for number in range(23)))
    assert (ids(found)[0], len(found.runs), found.omitted.runs) == ("r00", 20, 3)


def test_of_those_that_ended_the_last_twenty_are_looked_at() -> None:
    ended = [job(f"e{number:02}", state="complete", updated_at=100 - number) for number in range(25)]
    found = snapshot(*ended, job("live", updated_at=1), caps=SnapshotCaps(max_runs=30))
    assert (ids(found)[-1], len(found.runs), found.omitted.runs) == ("live", 21, 0)


def test_a_run_is_there_once() -> None:
    assert ids(snapshot(job("a"), job("a"))) == ["a"]


@pytest.mark.parametrize("session_id", ["other", None, ""])
def test_another_session_has_none(session_id: str | None) -> None:
    assert snapshot(job("a"), job("b", session_id=""), session_id=session_id).runs == ()


def test_eight_children_and_the_rest_is_counted() -> None:
    (node,) = (found := snapshot(job("r", *(step(number) for number in range(11))))).runs
    assert node.children
    assert (len(node.children), found.omitted.children) == (8, 3)


def nested(levels: int) -> Job:
    child = nested(levels - 1) if levels > 1 else None
    return job(f"r{levels}", step(), children=() if child is None else (child,))


def test_three_levels_below_a_run_and_the_rest_is_counted() -> None:
    found = snapshot(nested(4))
    assert (depth(found.runs[0]), found.omitted.children) == (4, 1)


def test_depth_0_has_no_children_and_counts_them() -> None:
    found = snapshot(job("r", step(), step(1)), caps=SnapshotCaps(max_depth=0))
    assert (found.runs[0].children, found.omitted.children) == (msgspec.UNSET, 2)


@pytest.mark.parametrize(
    ("status", "state", "is_over"),
    [
        ("completed", "complete", True),
        ("complete", "complete", True),
        ("pending", "queued", False),
        ("running", "running", False),
        ("failed", "failed", True),
        ("paused", "paused", True),
        ("stopped", "stopped", True),
        ("rejected", "rejected", True),
    ],
)
def test_states_are_named_as_of_runs_and_only_what_is_over_has_an_end(status: str, state: str, is_over: bool) -> None:
    (node,) = snapshot(job("r", step(status=status, ended_at=9))).runs
    assert node.children
    assert (node.children[0].state, node.children[0].ended_at) == (state, 9 if is_over else msgspec.UNSET)


def test_a_run_that_is_over_ended_when_it_changed_last() -> None:
    ended, live = snapshot(job("a", state="paused", updated_at=8), job("b", updated_at=7)).runs
    assert (ended.ended_at, live.ended_at) == (8, msgspec.UNSET)


def test_a_step_is_named_by_its_key_else_its_run_else_its_number() -> None:
    steps = [step(0, workflow_key="key", run_id="run"), step(1, run_id="run"), step(2, label="named")]
    (node,) = snapshot(job("r", *steps)).runs
    assert node.children
    assert [(each.id, each.label) for each in node.children] == [
        ("key", "worker"),
        ("run", "worker"),
        ("step:2", "named"),
    ]


@pytest.mark.parametrize(
    ("count", "label"), [(1, "a0"), (3, "a0, a1, a2"), (4, "a0, a1, a2, +1 more"), (6, "a0, a1, a2, +3 more")]
)
def test_a_run_is_labelled_by_its_first_three_agents(count: int, label: str) -> None:
    (node,) = snapshot(job("r", *(step(number, f"a{number}") for number in range(count)))).runs
    assert node.label == label


def test_a_workflow_says_so() -> None:
    assert snapshot(job("r", mode="workflow")).runs[0].kind == "workflow"


def test_texts_are_clean_and_bounded() -> None:
    (node,) = snapshot(job("r", step(label="\x1b[31m" + "x" * 300))).runs
    assert node.children
    assert node.children[0].label == "x" * 160


def test_what_is_too_large_loses_whole_runs_from_the_end() -> None:
    jobs = [job(f"r{number:02}", step(label="x" * 160), updated_at=100 - number) for number in range(10)]
    whole = snapshot(*jobs)
    bound = len(encode_json(whole)) - 9
    found = snapshot(*jobs, caps=SnapshotCaps(max_serialized_bytes=bound))
    assert len(encode_json(found)) <= bound
    assert ids(found) == ids(whole)[:9]
    assert (found.omitted.runs, found.omitted.byte_limit_exceeded) == (1, True)


def test_what_fits_exactly_is_whole() -> None:
    jobs = [job("a"), job("b")]
    size = len(encode_json(snapshot(*jobs)))
    caps = SnapshotCaps(max_serialized_bytes=100_000)
    larger = len(encode_json(snapshot(*jobs, caps=caps)))
    assert larger == size + 1  # the bound has a digit more
    assert len(snapshot(*jobs, caps=SnapshotCaps(max_serialized_bytes=size - 2)).runs) == 2


def test_a_bound_below_256_bytes_is_256() -> None:
    assert snapshot(job("a"), caps=SnapshotCaps(max_serialized_bytes=1)).caps.max_serialized_bytes == 256
    assert snapshot(job("a"), caps=SnapshotCaps(max_serialized_bytes=1)).runs == ()
