import pytest

from pisub.cli.console import safe, safe_line
from pisub.cli.render import age, duration, event_text, runs_table, table, unique_prefixes
from pisub.cli.summary import RunSummary
from pisub.protocol.runs import RunState
from pisub.record.model import JournalEvent

ONE = "01kb0000000000000000000001"
TWO = "01kb0000000000000000000002"
FAR = "01kc0000000000000000000000"


def event(kind: str, **data: object) -> JournalEvent:
    return JournalEvent(type=f"subagent.{kind}", seq=1, ts=0, run_id=ONE, data=data)


def summary(**changes: object) -> RunSummary:
    values: dict[str, object] = {
        "run_id": ONE,
        "state": RunState.RUNNING,
        "is_unknown": False,
        "agent": "surveyor",
        "label": "",
        "session_id": "s",
        "parent_run_id": None,
        "depth": 0,
        "pid": 42,
        "submitted_at": 1_000,
        "started_at": 2_000,
        "ended_at": None,
        "last_update": 3_000,
        "activity": "reading",
        "activity_since": None,
        "attention": None,
        "attention_reason": None,
        "tool_count": 0,
        "reason": None,
        "error": None,
        "open_questions": 0,
    }
    return RunSummary(**(values | changes))  # type: ignore[arg-type]  # a table of defaults


def test_what_a_child_wrote_cannot_drive_the_terminal() -> None:
    assert safe("a\x1b]0;title\x07b\x9b2J\u202e") == "a\\x1b]0;title\\x07b\\x9b2J\\x202e"
    assert safe("tab\tand\nnewline stay") == "tab\tand\nnewline stay"
    assert safe_line("two\nlines\x1b[2J") == "two lines\\x1b[2J"
    assert safe_line("abcdef", width=4) == "abc…"


@pytest.mark.parametrize(
    ("milliseconds", "text"), [(0, "0s"), (59_999, "59s"), (60_000, "1m"), (7_200_000, "2h"), (172_800_000, "2d")]
)
def test_an_age_has_its_largest_unit(milliseconds: int, text: str) -> None:
    assert age(milliseconds) == text


def test_a_duration_has_seconds() -> None:
    assert (duration(400), duration(185_000)) == ("0.4 s", "3 min 5 s")


def test_a_prefix_is_as_long_as_it_must_be_and_no_shorter_than_8() -> None:
    assert unique_prefixes([ONE, TWO, FAR], [ONE, TWO, FAR]) == {ONE: ONE, TWO: TWO, FAR: FAR[:8]}
    assert unique_prefixes([ONE], [FAR]) == {ONE: ONE[:8]}
    assert unique_prefixes([], [FAR]) == {}


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert table(("A", "BB"), [("long", "x"), ("s", "yy")]) == ["A     BB", "long  x", "s     yy"]


def test_a_run_that_nobody_can_look_at_is_unknown_and_not_running() -> None:
    lines = runs_table([summary(is_unknown=True, label="x\x1b[0m")], {ONE: ONE[:8]}, now_ms=63_000)
    assert lines[1] == "01kb0000  unknown, last seen 1m ago  surveyor  1m   x\\x1b[0m  42   -     reading"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (event("run.started"), "started"),
        (event("child.log", text="hello\x1b[2J\n"), "hello\\x1b[2J"),
        (event("tool.started", tool="grep", args={"pattern": "x y", "n": 3}), "→ grep(pattern=x y, n=3)"),
        (event("tool.completed", tool="grep", isError=False), None),
        (event("tool.completed", tool="grep", isError=True), "✗ grep failed"),
        (event("ask.opened", askId="a", count=2), "? asks you 2 questions"),
        (event("ask.closed", askId="a", status="no-host"), "? no-host"),
        (event("artifact.written", path="report.md", bytes=10), "wrote report.md (10 bytes)"),
        (event("run.timed_out"), "timed out"),
        (event("run.stopped", reason="stopped", message="by\ncli"), "stopping: by cli"),
        (event("run.completed", status="complete"), "complete"),
        (event("run.completed", status="stopped", reason="stop"), "stopped"),
        (event("run.completed", status="failed", reason="agent-error"), "failed: agent-error"),
        (event("run.repaired_stale", state="failed", signal="SIGKILL"), "failed: SIGKILL, found afterwards"),
        (event("step.started"), None),
        (event("something.new"), None),
    ],
)
def test_an_event_is_a_line_for_people(given: JournalEvent, text: str | None) -> None:
    assert event_text(given) == text
