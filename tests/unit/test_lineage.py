"""Where a run may stand, and what stands below it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pisub.config import outer_depth
from pisub.errors import RecordCorruptError, RefusedError
from pisub.record.layout import Layout
from pisub.record.submit import submit_run
from pisub.record.tree import children, count_charged, descendants, drop_unsubmitted, is_below
from pisub.runs.lineage import Lineage, lineage
from pisub.runs.spec import RunSpec
from tests.support.record_samples import make_spec

ROOT, CHILD, GRANDCHILD, OTHER, AGAIN = (f"0{letter * 25}" for letter in "abcde")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout(tmp_path / "home", fsync=False)
    made.prepare()
    return made


def spec_of(run_id: str, parent: RunSpec | None = None, **fields: object) -> RunSpec:
    place = lineage(parent, max_depth=9)
    changes: dict[str, object] = msgspec.structs.asdict(place) | {"max_depth": 9}
    return msgspec.structs.replace(make_spec(run_id), **{**changes, **fields})


def family(layout: Layout) -> tuple[RunSpec, RunSpec, RunSpec]:
    root = spec_of(ROOT)
    child = spec_of(CHILD, root)
    grandchild = spec_of(GRANDCHILD, child)
    for each in (root, child, grandchild, spec_of(OTHER, root)):
        submit_run(layout, each)
    return root, child, grandchild


@pytest.mark.parametrize(
    ("max_depth", "agent", "expected"),
    [(2, None, 2), (2, 1, 1), (2, 5, 2), (1, 0, 0)],
)
def test_a_first_run_has_depth_0_and_the_tighter_of_two_limits(
    max_depth: int, agent: int | None, expected: int
) -> None:
    assert lineage(None, max_depth=max_depth, agent_max_depth=agent) == Lineage(depth=0, max_depth=expected)


def test_a_childs_limit_is_its_parents_or_tighter() -> None:
    parent = spec_of(ROOT, max_depth=3)
    assert lineage(parent, max_depth=50) == Lineage(depth=1, max_depth=3, parent_run_id=ROOT, root_run_id=ROOT)
    assert lineage(parent, max_depth=2).max_depth == 2


@pytest.mark.parametrize(("depth", "max_depth"), [(0, 0), (1, 1), (2, 2), (3, 2)])
def test_who_stands_as_deep_as_the_limit_may_not_delegate(depth: int, max_depth: int) -> None:
    with pytest.raises(RefusedError, match="PISUB_MAX_DEPTH") as refused:
        lineage(None, max_depth=max_depth, outer_depth=depth)
    assert refused.value.code == "depth_exceeded"


@pytest.mark.parametrize(("text", "expected"), [("", 0), ("2", 2), ("deep", 0), ("-1", 0), ("²", 0), ("1e3", 0)])
def test_a_depth_that_is_no_number_blocks_nothing(monkeypatch: pytest.MonkeyPatch, text: str, expected: int) -> None:
    monkeypatch.setenv("PISUB_DEPTH", text)
    assert outer_depth() == expected


def test_a_tree_is_known_from_any_run_in_it(layout: Layout) -> None:
    root, child, grandchild = family(layout)
    assert [each.run_id for each in descendants(layout, ROOT)] == [CHILD, GRANDCHILD, OTHER]
    assert descendants(layout, CHILD) == [grandchild]
    assert descendants(layout, GRANDCHILD) == []
    assert [each.run_id for each in children(descendants(layout, ROOT), ROOT)] == [CHILD, OTHER]
    assert (root.depth, child.depth, grandchild.depth) == (0, 1, 2)


def test_below_is_what_a_run_started_and_theirs_and_nobody_else(layout: Layout) -> None:
    family(layout)
    pairs = {(below, above) for below in (ROOT, CHILD, GRANDCHILD, OTHER) for above in (ROOT, CHILD, GRANDCHILD, OTHER)}
    assert {pair for pair in pairs if is_below(layout, *pair)} == {
        (CHILD, ROOT),
        (OTHER, ROOT),
        (GRANDCHILD, CHILD),
        (GRANDCHILD, ROOT),
    }


def test_a_run_that_goes_on_with_another_is_in_the_tree_and_not_counted(layout: Layout) -> None:
    root, *_ = family(layout)
    submit_run(layout, spec_of(AGAIN, root, resumed_from=CHILD))
    assert AGAIN in [each.run_id for each in descendants(layout, ROOT)]
    assert count_charged(layout, ROOT) == 3


def test_what_cannot_be_read_hides_no_other_run(layout: Layout) -> None:
    family(layout)
    layout.run(CHILD).spec.write_bytes(b"{")
    problems: list[str] = []
    found = descendants(layout, ROOT, on_problem=lambda run_id, _: problems.append(run_id))
    assert ([each.run_id for each in found], problems) == ([GRANDCHILD, OTHER], [CHILD])
    with pytest.raises(RecordCorruptError):
        descendants(layout, CHILD)


def test_a_name_without_a_run_goes_and_that_of_a_removed_run_stays(layout: Layout) -> None:
    family(layout)
    for name in (AGAIN, "0" + "f" * 25):
        (layout.run(ROOT).tree / name).touch()
    (layout.runs / f".deleting-{AGAIN}").mkdir()
    drop_unsubmitted(layout, ROOT)
    assert sorted(each.name for each in layout.run(ROOT).tree.iterdir()) == [CHILD, GRANDCHILD, OTHER, AGAIN]
