from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pisub.errors import RecordError, UnsafePathError
from pisub.ids import new_id
from pisub.protocol.limits import MAX_EVENT_LINE_BYTES
from pisub.record.journal import REPAIRED, TRUNCATED, Journal, JournalReader
from pisub.record.journal_reader import MAX_LINE_BYTES
from pisub.record.layout import Layout, RunPaths

NOW = 1_800_000_000_000


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    layout = Layout(tmp_path / "state", fsync=False)
    layout.prepare()
    paths = layout.run(new_id())
    paths.dir.mkdir(mode=0o700)
    return paths


def write(paths: RunPaths, *kinds: str, max_bytes: int | None = None) -> list[int]:
    options = {} if max_bytes is None else {"max_bytes": max_bytes}
    with Journal.open(paths, paths.run_id, now_ms=NOW, **options) as journal:
        events = [journal.append(kind, {"text": kind}, ts=NOW) for kind in kinds]
        journal.flush()
    return [event.seq for event in events if event is not None]


def types(paths: RunPaths) -> list[str]:
    return [event.type for event in JournalReader(paths.events).read_new()]


def test_numbers_go_on_without_a_gap_when_a_journal_is_opened_again(paths: RunPaths) -> None:
    assert write(paths, "subagent.a", "subagent.b") == [1, 2]
    assert write(paths, "subagent.c") == [3]
    assert [(e.seq, e.type, e.run_id) for e in JournalReader(paths.events).read_new()] == [
        (1, "subagent.a", paths.run_id),
        (2, "subagent.b", paths.run_id),
        (3, "subagent.c", paths.run_id),
    ]


def test_nothing_is_in_the_file_before_the_flush(paths: RunPaths) -> None:
    with Journal.open(paths, paths.run_id) as journal:
        journal.append("subagent.a", ts=NOW)
        assert (types(paths), journal.is_waiting, journal.last_seq) == ([], True, 1)
        journal.flush()
        assert (types(paths), journal.is_waiting) == (["subagent.a"], False)


def test_a_journal_is_private_whatever_the_umask(paths: RunPaths) -> None:
    before = os.umask(0)
    try:
        write(paths, "subagent.a")
    finally:
        os.umask(before)
    assert stat.S_IMODE(paths.events.stat().st_mode) == 0o600


def test_a_journal_behind_a_symlink_is_refused(paths: RunPaths, tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"")
    paths.events.symlink_to(tmp_path / "target")
    with pytest.raises(UnsafePathError):
        Journal.open(paths, paths.run_id)
    with pytest.raises(UnsafePathError):
        JournalReader(paths.events).read_new()
    assert (tmp_path / "target").read_bytes() == b""


def test_a_torn_tail_is_cut_and_reported_before_the_next_append(paths: RunPaths) -> None:
    write(paths, "subagent.a")
    whole = paths.events.read_bytes()
    paths.events.write_bytes(whole + b'{"type":"subagent.b","se')
    write(paths, "subagent.c")
    events = JournalReader(paths.events).read_new()
    assert [(e.seq, e.type, e.data) for e in events] == [
        (1, "subagent.a", {"text": "subagent.a"}),
        (2, REPAIRED, {"bytesRemoved": 24}),
        (3, "subagent.c", {"text": "subagent.c"}),
    ]
    assert paths.events.read_bytes().startswith(whole)


def test_a_whole_line_of_garbage_at_the_end_does_not_restart_the_numbers(paths: RunPaths) -> None:
    write(paths, "subagent.a", "subagent.b")
    with paths.events.open("ab") as file:
        file.write(b"\0" * 200_000 + b"\n")
    assert write(paths, "subagent.c") == [3]


def test_the_reader_holds_back_an_incomplete_line_until_it_is_whole(paths: RunPaths) -> None:
    write(paths, "subagent.a", "subagent.b")
    data = paths.events.read_bytes()
    reader = JournalReader(paths.events)
    seen: list[list[int]] = []
    for end in (0, 10, data.index(b"\n"), data.index(b"\n") + 1, len(data) - 1, len(data)):
        paths.events.write_bytes(data[:end])
        seen.append([event.seq for event in reader.read_new()])
    assert seen == [[], [], [], [1], [], [2]]


def test_a_bad_line_hides_only_itself(paths: RunPaths) -> None:
    write(paths, "subagent.a", "subagent.b")
    first, second = paths.events.read_bytes().splitlines(keepends=True)
    paths.events.write_bytes(first + b"garbage\n[1]\n\xff\xfe\n" + second)
    reader = JournalReader(paths.events)
    assert ([e.seq for e in reader.read_new()], reader.skipped) == ([1, 2], 3)


def test_a_line_longer_than_any_of_ours_is_passed_over(paths: RunPaths) -> None:
    write(paths, "subagent.a", "subagent.b")
    first, second = paths.events.read_bytes().splitlines(keepends=True)
    reader = JournalReader(paths.events)
    paths.events.write_bytes(first + b"x" * (3 * MAX_LINE_BYTES))
    assert [e.seq for e in reader.read_new()] == [1]
    with paths.events.open("ab") as file:
        file.write(b"x" * 70_000 + b"\n" + second)
    assert ([e.seq for e in reader.read_new()], reader.skipped) == ([2], 1)


def test_a_reader_of_a_journal_that_does_not_exist_yet_waits(paths: RunPaths) -> None:
    reader = JournalReader(paths.events)
    assert reader.read_new() == []
    write(paths, "subagent.a")
    assert [e.seq for e in reader.read_new()] == [1]


def test_diagnostics_end_at_the_cap_with_one_marker_and_lifecycle_goes_on(paths: RunPaths) -> None:
    with Journal.open(paths, paths.run_id, max_bytes=4_000) as journal:
        kept = [
            journal.append("subagent.child.log", {"text": "x" * 100}, ts=NOW, is_diagnostic=True) for _ in range(50)
        ]
        journal.append("subagent.run.completed", ts=NOW)
        journal.flush()
    count = sum(event is not None for event in kept)
    assert types(paths) == ["subagent.child.log"] * count + [TRUNCATED, "subagent.run.completed"]
    assert (10 < count < 50, journal.dropped, paths.events.stat().st_size <= 4_000) == (True, 50 - count, True)
    assert [e.seq for e in JournalReader(paths.events).read_new()] == list(range(1, count + 3))


def test_the_marker_is_not_written_again_by_the_next_opener(paths: RunPaths) -> None:
    for _ in range(2):
        with Journal.open(paths, paths.run_id, max_bytes=2_000) as journal:
            for _ in range(30):
                journal.append("subagent.child.log", {"text": "x" * 100}, ts=NOW, is_diagnostic=True)
            journal.flush()
    assert types(paths).count(TRUNCATED) == 1


def test_an_event_too_long_for_a_line_is_cut_and_says_so(paths: RunPaths) -> None:
    with Journal.open(paths, paths.run_id) as journal:
        journal.append("subagent.child.log", {"text": "y" * 200_000, "n": 1}, ts=NOW)
        journal.append("subagent.child.log", {"list": ["z" * 200_000]}, ts=NOW)
        journal.flush()
    first, second = JournalReader(paths.events).read_new()
    assert (first.data["n"], first.data["isCut"], set(first.data["text"])) == (1, True, {"y"})
    assert second.data.keys() == {"isCut", "lineBytes"}
    assert max(map(len, paths.events.read_bytes().splitlines())) < MAX_EVENT_LINE_BYTES


def test_text_that_is_no_unicode_is_written_with_replacements(paths: RunPaths) -> None:
    with Journal.open(paths, paths.run_id) as journal:
        journal.append("subagent.child.log", {"text": "a\udcffb", "list": ["\ud800"]}, ts=NOW)
        journal.flush()
    assert [e.data for e in JournalReader(paths.events).read_new()] == [{"text": "a?b", "list": ["?"]}]


def test_a_closed_journal_says_so(paths: RunPaths) -> None:
    journal = Journal.open(paths, paths.run_id)
    journal.close()
    journal.close()
    with pytest.raises(RecordError) as caught:
        journal.flush()
    assert caught.value.code == "journal_closed"


def test_a_journal_that_shrank_and_grew_again_gives_no_event_twice(paths: RunPaths) -> None:
    write(paths, "subagent.a", "subagent.b", "subagent.c")
    data = paths.events.read_bytes()
    lines = data.splitlines(keepends=True)
    reader = JournalReader(paths.events)
    seen: list[list[int]] = []
    for content in (lines[0] + lines[1], lines[0], data):
        paths.events.write_bytes(content)
        seen.append([event.seq for event in reader.read_new()])
    assert seen == [[1, 2], [], [3]]
