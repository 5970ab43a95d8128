"""When a run's clock stands still for questions of others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pisub.config import Settings
from pisub.ids import new_id
from pisub.process import identify
from pisub.record.atomic import encode_record, write_new
from pisub.record.awaits import AwaitNote, awaited_runs, note_await
from pisub.record.layout import Layout
from pisub.runs.standstill import Below, stands_still


@pytest.mark.parametrize(
    ("awaited", "below", "still"),
    [
        ("a", {"a": True}, True),
        ("a", {"a": False}, False),
        ("a", {}, False),  # it has ended: whoever waits will hear of it
        ("a", {"b": True}, False),  # nobody waits for that one
        ("a", {"a": True, "b": True}, True),
        ("a", {"a": True, "b": False}, False),  # another one works for this run
        ("ab", {"a": True, "b": True}, True),
        ("", {"a": True}, False),
    ],
)
def test_a_run_stands_still_where_it_awaits_a_waiting_run_and_none_below_works(
    awaited: str, below: dict[str, bool], *, still: bool
) -> None:
    assert stands_still(frozenset(awaited), [Below(name, waits) for name, waits in below.items()]) is still


RUN, OTHER = new_id(), new_id()


@pytest.fixture
def layout(settings: Settings) -> Layout:
    layout = Layout.of(settings)
    layout.prepare()
    (layout.runs / RUN).mkdir(mode=0o700)
    return layout


def test_a_wait_is_noted_for_as_long_as_it_lasts_and_waits_nest(layout: Layout) -> None:
    paths = layout.run(RUN)
    assert awaited_runs(paths) == frozenset()
    with note_await(paths, ["x", "y"]), note_await(paths, ["z"]):
        assert awaited_runs(paths) == {"x", "y", "z"}
        assert {path.stat().st_mode & 0o777 for path in paths.awaits.iterdir()} == {0o600}
    assert awaited_runs(paths) == frozenset()


def test_what_a_dead_process_waited_for_is_forgotten_and_what_is_no_note_ignored(layout: Layout) -> None:
    paths = layout.run(RUN)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        identity = identify(process.pid)
        assert identity is not None
        process.communicate(b"\n")
    with note_await(paths, ["x"]):
        write_new(paths.awaits / "1-dead.json", encode_record(AwaitNote(process=identity, run_ids=("y",))), fsync=False)
        write_new(paths.awaits / "torn.json", b"{", fsync=False)
        assert awaited_runs(paths) == {"x"}
        assert not (paths.awaits / "1-dead.json").exists()


def test_a_disk_that_refuses_costs_only_the_clock(layout: Layout, tmp_path: Path) -> None:
    paths = layout.run(RUN)
    paths.awaits.write_text("in the way")
    with note_await(paths, ["x"]):
        pass
    gone = layout.run(OTHER)
    with note_await(gone, ["x"]):
        assert not os.path.lexists(gone.dir)
