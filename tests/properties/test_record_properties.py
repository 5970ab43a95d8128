from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pisub.errors import InvalidArgumentError, InvalidIdError, PisubError, RecordCorruptError
from pisub.ids import is_id, new_id
from pisub.protocol.base import Record
from pisub.record.atomic import decode_record, encode_record
from pisub.record.control import read_requests
from pisub.record.journal import REPAIRED, Journal, JournalReader
from pisub.record.layout import Layout, RunPaths
from pisub.record.model import (
    AskOutcome,
    AskRecord,
    Completion,
    ControlRequest,
    JournalEvent,
    ProcessTerminalProof,
    QuestionOutcome,
    RunResult,
    RunStatus,
    Started,
)
from pisub.record.questions import find_question
from pisub.record.reader import find_run, list_runs, read_run
from pisub.record.sessions import HostRecord, Outbox
from pisub.record.submit import SessionRecord
from pisub.runs.spec import RunSpec
from tests.support.record_samples import make_layout, make_result, make_spec, submit

RECORDS: tuple[type[Record], ...] = (
    AskOutcome,
    AskRecord,
    Completion,
    ControlRequest,
    HostRecord,
    JournalEvent,
    ProcessTerminalProof,
    QuestionOutcome,
    RunResult,
    RunSpec,
    RunStatus,
    SessionRecord,
    Started,
)
NOWHERE = Layout(Path("/nonexistent/and/never/made"))
any_text = st.one_of(
    st.text(),
    st.sampled_from(["", "..", "../x", "/etc/passwd", "a/b", "\0", "a\nb", "x" * 5_000, "０" * 26, "I" * 26]),
    st.text(alphabet="0123456789abcdefghjkmnpqrstvwxyz./\0\n", min_size=25, max_size=27),
)
a_little = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(any_text)
def test_any_text_that_is_no_id_is_refused_before_a_path_is_built(text: str) -> None:
    if is_id(text):
        assert NOWHERE.run(text).dir.parent == NOWHERE.runs
        return
    for build in (NOWHERE.run, lambda each: NOWHERE.run(new_id()).ask(each), lambda each: read_run(NOWHERE, each)):
        with pytest.raises(InvalidIdError):
            build(text)


@given(any_text)
def test_any_text_as_a_reference_is_refused_or_finds_nothing_and_reads_no_path_of_its_own(text: str) -> None:
    for find in (find_run, find_question):
        with pytest.raises(PisubError):
            find(NOWHERE, text)


@given(any_text)
def test_any_text_as_a_session_id_is_refused_or_becomes_a_digest(text: str) -> None:
    try:
        session = NOWHERE.session(text)
    except InvalidArgumentError:
        return
    assert session.dir.parent == NOWHERE.sessions
    assert len(session.dir.name) == 32
    assert set(session.dir.name) <= set("0123456789abcdef")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A real record with bytes changed, cut out or put in."""
    sample = draw(st.sampled_from([make_spec("0" * 26), make_result(make_spec("0" * 26))]))
    data = bytearray(encode_record(sample))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 40))] = draw(st.binary(max_size=8))
    return bytes(data)


@given(st.sampled_from(RECORDS), st.one_of(st.binary(), damaged(), st.just(b"[" * 100_000), st.just(b'{"a":' * 9_999)))
def test_any_bytes_in_any_record_are_a_value_or_corrupt(kind: type[Record], data: bytes) -> None:
    try:
        value = decode_record(data, kind, Path("f.json"))
    except RecordCorruptError:
        return
    assert isinstance(value, kind)
    assert decode_record(encode_record(value), kind, Path("f.json")) == value


FILES: dict[str, Callable[[RunPaths], Path]] = {
    "spec": lambda paths: paths.spec,
    "started": lambda paths: paths.started,
    "status": lambda paths: paths.status,
    "result": lambda paths: paths.result,
    "pending": lambda paths: paths.pending_result,
    "proof": lambda paths: paths.process_terminal,
    "events": lambda paths: paths.events,
    "lock": lambda paths: paths.lock,
    "stop": lambda paths: paths.request("stop"),
}


@a_little
@given(st.sampled_from(sorted(FILES)), st.one_of(st.binary(max_size=200), damaged()))
def test_any_bytes_in_any_file_of_a_run_give_a_view_or_an_error_and_hide_no_other_run(name: str, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        layout = make_layout(Path(directory))
        bad, good = submit(layout), submit(layout)
        paths = layout.run(bad.run_id)
        FILES[name](paths).write_bytes(data)
        try:
            read_run(layout, bad.run_id)
        except RecordCorruptError as error:
            named = error.message
        else:
            named = FILES[name](paths).name
        assert FILES[name](paths).name in named
        read_requests(paths)
        JournalReader(paths.events).read_new()
        assert good.run_id in [view.run_id for view in list_runs(layout)]
        Outbox(layout, bad.session_id).pending()


events = st.lists(
    st.tuples(
        st.sampled_from(["subagent.a", "subagent.b"]), st.dictionaries(st.text(max_size=6), json_values, max_size=3)
    ),
    max_size=8,
)


def finite(value: object) -> bool:
    """Whether JSON, with 64-bit numbers, holds the value as it is."""
    match value:
        case float():
            return math.isfinite(value)
        case bool() | None | str():
            return True
        case int():
            return -(2**63) <= value < 2**64
        case list():
            return all(map(finite, value))
        case dict():
            return all(map(finite, value.values()))
        case _:
            return False


@a_little
@given(events, st.data())
def test_a_journal_cut_anywhere_gives_back_its_whole_lines_and_goes_on(
    lines: list[tuple[str, dict[str, object]]], data: st.DataObject
) -> None:
    lines = [line for line in lines if finite(line[1])]
    with tempfile.TemporaryDirectory() as directory:
        layout = make_layout(Path(directory))
        paths = layout.run(submit(layout).run_id)
        with Journal.open(paths, paths.run_id) as journal:
            written = [journal.append(kind, content, ts=n) for n, (kind, content) in enumerate(lines)]
            journal.flush()
        whole = paths.events.read_bytes()
        reader = JournalReader(paths.events)
        cut = data.draw(st.integers(0, len(whole)))
        paths.events.write_bytes(whole[:cut])
        kept = whole[:cut].count(b"\n")
        is_torn = cut > 0 and whole[cut - 1 : cut] != b"\n"
        assert reader.read_new() == written[:kept]
        with Journal.open(paths, paths.run_id, now_ms=99) as journal:
            last = journal.append("subagent.z", ts=100)
            journal.flush()
        rest = reader.read_new()
        assert [event.type for event in rest] == [REPAIRED] * is_torn + ["subagent.z"]
        assert rest[-1] == last
        assert [event.seq for event in JournalReader(paths.events).read_new()] == list(range(1, kept + is_torn + 2))


@a_little
@given(events, st.lists(st.integers(0, 4_000), max_size=8))
def test_a_reader_that_looks_at_any_moments_gets_each_event_once(
    lines: list[tuple[str, dict[str, object]]], moments: list[int]
) -> None:
    lines = [line for line in lines if finite(line[1])]
    with tempfile.TemporaryDirectory() as directory:
        layout = make_layout(Path(directory))
        paths = layout.run(submit(layout).run_id)
        with Journal.open(paths, paths.run_id) as journal:
            written = [journal.append(kind, content, ts=n) for n, (kind, content) in enumerate(lines)]
            journal.flush()
        whole = paths.events.read_bytes()
        reader, seen = JournalReader(paths.events), list[JournalEvent]()
        for size in [*sorted(min(moment, len(whole)) for moment in moments), len(whole)]:
            paths.events.write_bytes(whole[:size])
            seen += reader.read_new()
        assert seen == written
        assert reader.skipped == 0
