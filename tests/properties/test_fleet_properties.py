"""The text of the fleet for any text, and the snapshot for any jobs."""

import re
import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pisub.fleet import FleetKeys, Job, build_fleet, build_snapshot, clean_line
from pisub.fleet.text import cut_units, units
from pisub.protocol.fleet import SnapshotCaps, encode_json
from tests.support.fleet_jobs import NOW_MS, SESSION, job, step

ESC = "\x1b"
PIECES = st.sampled_from(
    [ESC, f"{ESC}[", f"{ESC}]", f"{ESC}P", f"{ESC}\\", "\x07", "\x9b", "\x9c", "\x9d", "\ud800", "\udc00", "😀", "m",
     "31", ";", " ", "\n", "\u2028", "\ufeff", "\u200b", "a"]
)  # fmt: skip
TEXTS = st.one_of(
    st.text(st.characters(), max_size=80), st.lists(PIECES, max_size=40).map("".join), st.text(max_size=6_000)
)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("worker\ud800broken\udc00x", "worker broken x"),
        ("a\x1b]8;;hostile\x07b", "a b"),
        ("a\x1b]8;;hostile\x1b\\b", "a b"),
        ("a\x1b]8;;hostile\x9cb", "a b"),
        ("a\x9d8;;hostile\x07b", "a b"),
        ("a\x1b[31mred\x1b[0m", "a red"),
        ("a \x1b[31m red \x1b[0m", "a red"),
        ("a\x9b31mred", "a red"),
        ("a\x1b]no-terminator", "a"),
        ("a\x1b[31", "a"),
        ("\x1bPdcs\x1b\\z", "z"),
        ("\x1bXsos\x1b\\\x1b^pm\x1b\\\x1b_apc\x1b\\z", "z"),
        ("\x90dcs\x9cz", "z"),
        ("e\x1bMf", "e f"),
        ("a\x85b\xa0c\u2028d\ufeffe", "a b c d e"),
        ("\ufeffa\ufeff", "a"),
        ("a\u200bb", "a\u200bb"),
        ("\ud83d\ude00", "😀"),
        ("a\n\t\r\0\x7f b", "a b"),
        ("", ""),
    ],
)
def test_the_contracts_vectors(text: str, clean: str) -> None:
    assert clean_line(text, 96) == clean


def test_a_pair_is_never_cut_in_two() -> None:
    assert cut_units("😀😀😀", 5) == "😀😀"
    assert clean_line("😀😀😀", 5) == "😀😀"


def test_what_comes_after_4096_units_is_not_looked_at() -> None:
    assert clean_line(" " * 4_096 + "x", 96) == ""
    assert clean_line(" " * 4_095 + "xy", 96) == "x"


@given(TEXTS, st.integers(0, 200))
def test_a_clean_line_drives_nothing_fits_and_stays_as_it_is(text: str, bound: int) -> None:
    line = clean_line(text, bound)
    assert units(line) <= bound
    assert not any(unicodedata.category(each) in ("Cc", "Cs") for each in line)
    assert line == line.strip()
    assert not re.search(r"\s\s|\ufeff", line)
    line.encode("utf-8")
    assert clean_line(line, bound) == line


@given(st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=40))
def test_visible_text_is_left_alone(text: str) -> None:
    assert clean_line(text, 96) == text


@given(TEXTS, st.integers(0, 50))
def test_a_cut_text_is_a_beginning(text: str, bound: int) -> None:
    cut = cut_units(text, bound)
    assert text.encode("utf-16-le", "surrogatepass").startswith(cut.encode("utf-16-le", "surrogatepass"))
    assert units(cut) <= bound


STEPS = st.builds(
    step,
    st.integers(0, 20),
    TEXTS,
    st.sampled_from(["running", "pending", "complete", "failed", "paused"]),
    label=TEXTS,
    started_at=st.one_of(st.none(), st.integers(-5, 2**60)),
)
JOBS = st.recursive(
    st.builds(
        lambda run_id, steps, **fields: job(run_id, *steps, **fields),
        st.sampled_from([f"r{number}" for number in range(30)]),
        st.lists(STEPS, max_size=4),
        state=st.sampled_from(["queued", "running", "complete", "paused"]),
        session_id=st.sampled_from([SESSION, SESSION, "other", ""]),
        mode=st.sampled_from(["single", "chain", "parallel", "workflow"]),
        goal=TEXTS,
        updated_at=st.one_of(st.none(), st.integers(0, 100)),
    ),
    lambda inner: st.builds(
        lambda top, below: msgspec.structs.replace(top, children=tuple(below)), inner, st.lists(inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.lists(JOBS, max_size=12), st.integers(256, 4_000))
def test_a_snapshot_keeps_every_bound(jobs: list[Job], size: int) -> None:
    caps = SnapshotCaps(max_serialized_bytes=size, max_runs=5, max_children_per_node=2, max_depth=2)
    found = build_snapshot(jobs, SESSION, generated_at=NOW_MS, caps=caps)
    assert not found.runs or len(encode_json(found)) <= size
    ours = {each.id for each in jobs if each.session_id == SESSION}
    assert len(found.runs) <= 5
    assert {each.id for each in found.runs} <= ours
    assert len(found.runs) + found.omitted.runs == len(ours)


@given(st.lists(st.lists(JOBS, max_size=8), min_size=1, max_size=5))
def test_a_fleet_counts_each_active_child_once_and_gives_no_key_twice(looks: list[list[Job]]) -> None:
    keys = FleetKeys()
    highest = 0
    for jobs in looks:
        unique = list({each.id: each for each in jobs}.values())
        found = build_fleet(unique, SESSION, keys)
        numbers = [int(each.key.removeprefix("fleet-")) for each in found.entries]
        assert len(numbers) + found.omitted == found.total_active
        assert len(numbers) <= 16
        fresh = [number for number in numbers if number > highest]
        assert fresh == sorted(fresh)
        highest = max([highest, *numbers])
        assert [each.started_at for each in found.entries] == sorted(each.started_at for each in found.entries)
