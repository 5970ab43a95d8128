"""What an agent's function can do with its child, against a shell that writes everything down."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pisub.child import Child
from pisub.engines.base import ArtifactWritten, AskTimes, LogLine, ToolEnded, ToolStarted, UsageReported
from pisub.errors import InvalidArgumentError, RefusedError
from pisub.protocol.checkpoint import Answer, AskResult, AskStatus, Question
from pisub.runs.usage import Usage
from tests.support.engine_shell import RecordingShell, context


def child_in(directory: Path, shell: RecordingShell, *, can_ask: bool = True) -> Child:
    return Child(context(directory, can_ask=can_ask), shell)


def test_a_tool_is_shown_while_it_lasts_and_an_exception_is_its_error(tmp_path: Path) -> None:
    shell = RecordingShell()
    child = child_in(tmp_path, shell)
    child.log("begin")
    with child.tool("read", path=Path("a"), limit=3, text="x" * 500):
        pass
    with pytest.raises(ValueError, match="no"), child.tool("write"):
        raise ValueError("no")
    assert shell.events == [
        LogLine("begin"),
        ToolStarted(1, "read", {"path": "a", "limit": 3, "text": "x" * 200 + "…"}),
        ToolEnded(1, "read", is_error=False),
        ToolStarted(2, "write", {}),
        ToolEnded(2, "write", is_error=True),
    ]


def test_a_usage_is_reported_as_one_turn_and_a_wrong_one_by_its_name(tmp_path: Path) -> None:
    shell = RecordingShell()
    child = child_in(tmp_path, shell)
    child.report_usage(input=10, output=2, cache_read=1, cost=1, model="m")
    assert shell.events == [UsageReported(Usage(input=10, output=2, cache_read=1, cost=1.0, turns=1), "m")]
    for wrong in ({"input": -1}, {"output": 1.5}, {"cache_write": True}, {"cost": float("nan")}, {"model": 3}):
        with pytest.raises(InvalidArgumentError) as refused:
            child.report_usage(**wrong)  # type: ignore[arg-type]
        assert refused.value.field == next(iter(wrong))
    assert len(shell.events) == 1


def test_files_lie_in_the_artifacts_directory_private_and_whole(tmp_path: Path) -> None:
    shell = RecordingShell()
    path = child_in(tmp_path, shell).write("a/b.txt", "é")
    assert path == tmp_path / "artifacts" / "a" / "b.txt"
    assert path.read_text() == "é"
    assert path.stat().st_mode & 0o777 == 0o600
    assert shell.events == [ArtifactWritten("a/b.txt", 2)]
    assert [each.name for each in path.parent.iterdir()] == ["b.txt"]


def test_files_are_private_and_usable_under_any_umask_of_the_agent_s(tmp_path: Path) -> None:
    child = child_in(tmp_path, RecordingShell())
    for umask in (0o000, 0o777):
        before = os.umask(umask)
        try:
            path = child.write(f"{umask}/a.txt", "x")
        finally:
            os.umask(before)
        assert [each.stat().st_mode & 0o777 for each in (path, path.parent, path.parent.parent)] == [
            0o600,
            0o700,
            0o700,
        ]


def test_half_a_character_is_refused_where_it_is_handed_over(tmp_path: Path) -> None:
    child = child_in(tmp_path, RecordingShell())
    with pytest.raises(InvalidArgumentError) as caught:
        child.write("a.txt", "\ud800")
    assert caught.value.field == "content"
    for question in ("\ud800", Question("Which?", options=["a", "\udfff"]), Question("Why?", placeholder="\ud800")):
        with pytest.raises(InvalidArgumentError) as caught:
            asyncio.run(child.ask(question))
        assert caught.value.field == "questions[0]"


@pytest.mark.parametrize("path", ["", ".", "..", "../x", "a/../../x", "/etc/passwd", "a\0b", "\ud800"])
def test_no_path_leads_out_of_the_artifacts_directory(tmp_path: Path, path: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        child_in(tmp_path, RecordingShell()).write(path, "x")
    assert caught.value.field == "path"


def test_no_symlink_leads_out_of_the_artifacts_directory(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / "link").symlink_to(outside)
    (tmp_path / "artifacts" / "file").symlink_to(outside / "victim")
    child = child_in(tmp_path, RecordingShell())
    with pytest.raises(InvalidArgumentError):
        child.write("link/x", "x")
    child.write("file", "x")
    assert list(outside.iterdir()) == []


def test_the_result_of_an_ask_comes_back_to_the_agent_s_loop(tmp_path: Path) -> None:
    result = AskResult(status=AskStatus.OK, answers=(Answer(value="a", by="t", at=1),))
    shell = RecordingShell(answer=result)
    child = child_in(tmp_path, shell)
    assert asyncio.run(child.ask("Which?", why="to know")) == result
    assert shell.asked == [((Question("Which?"),), "to know")]


def test_a_cancelled_ask_is_taken_back(tmp_path: Path) -> None:
    shell = RecordingShell()
    child = child_in(tmp_path, shell)

    async def ask_and_cancel() -> None:
        task = asyncio.create_task(child.ask("Which?"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(ask_and_cancel())
    assert shell.withdrawn == [1]


def test_who_may_not_ask_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(RefusedError):
        asyncio.run(child_in(tmp_path, RecordingShell(), can_ask=False).ask("Which?"))


@pytest.mark.parametrize(
    ("questions", "field"),
    [
        ([], "questions"),
        ([Question("x")] * 33, "questions"),
        (" ", "questions[0].text"),
        ([Question("ok"), Question("x" * 8001)], "questions[1].text"),
        (Question("x", options=["one"]), "questions[0].options"),
        (Question("x", options=["same", "same"]), "questions[0].options"),
        (Question("x", options="ab"), "questions[0].options"),
        (Question("x", options=["a", " "]), "questions[0].options"),
        (Question("x", options=["a", "b" * 501]), "questions[0].options"),
    ],
)
def test_a_question_out_of_bounds_is_the_asker_s_error_and_asks_nobody(
    tmp_path: Path, questions: Question | str | list[Question | str], field: str
) -> None:
    shell = RecordingShell()
    with pytest.raises(InvalidArgumentError) as caught:
        asyncio.run(child_in(tmp_path, shell).ask(questions))
    assert caught.value.field == field
    assert shell.asked == []


@pytest.mark.parametrize(
    ("field", "questions"),
    [
        ("questions", None),
        ("questions", 5),
        ("questions", {"a"}),
        ("questions[0]", [None]),
        ("questions[0].text", [Question(5)]),  # type: ignore[arg-type]  # what is tested
        ("questions[0].options", [Question("x", options=[1, 2])]),  # type: ignore[list-item]  # as above
        ("questions[0].placeholder", [Question("x", placeholder=None)]),  # type: ignore[arg-type]  # as above
    ],
    ids=str,
)
def test_what_is_no_question_is_refused_by_its_place(tmp_path: Path, field: str, questions: Any) -> None:
    shell = RecordingShell()
    with pytest.raises(InvalidArgumentError) as caught:
        asyncio.run(child_in(tmp_path, shell).ask(questions))
    assert (caught.value.field, shell.asked) == (field, [])


def test_what_an_agent_reports_wrongly_is_refused_by_the_argument_s_name(tmp_path: Path) -> None:
    child = child_in(tmp_path, RecordingShell())
    wrong: list[tuple[str, Callable[[], object]]] = [
        ("why", lambda: asyncio.run(child.ask("Which?", why=None))),  # type: ignore[arg-type]  # as above
        ("path", lambda: child.write(None, "x")),  # type: ignore[arg-type]  # as above
        ("path", lambda: child.write("", "x")),
        ("path", lambda: child.write("a\0b", "x")),
        ("content", lambda: child.write("a", None)),  # type: ignore[arg-type]  # as above
        ("content", lambda: child.write("a", 5)),  # type: ignore[arg-type]  # as above
        ("name", lambda: child.tool(None).__enter__()),  # type: ignore[arg-type]  # as above
    ]
    for field, attempt in wrong:
        with pytest.raises(InvalidArgumentError) as caught:
            attempt()
        assert caught.value.field == field
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, AskTimes()),
        ({"timeout_s": None}, AskTimes(timeout_ms=None)),
        ({"timeout_s": 90, "question_timeout_s": 0.5}, AskTimes(timeout_ms=90_000, question_timeout_ms=500)),
        ({"question_timeout_s": 0.0001}, AskTimes(question_timeout_ms=1)),
    ],
)
def test_an_ask_may_have_times_of_its_own(tmp_path: Path, given: dict[str, Any], expected: AskTimes) -> None:
    shell = RecordingShell(AskResult(status=AskStatus.OK, answers=(Answer(value="x", by="me", at=1),)))
    asyncio.run(child_in(tmp_path, shell).ask("Which?", **given))
    assert shell.times == [expected]


@pytest.mark.parametrize("field", ["timeout_s", "question_timeout_s"])
@pytest.mark.parametrize("value", [0, -1, "soon", float("inf"), 10**12, True])
def test_a_time_that_is_none_is_refused_by_its_name(tmp_path: Path, field: str, value: Any) -> None:
    shell = RecordingShell(None)
    with pytest.raises(InvalidArgumentError) as refused:
        asyncio.run(child_in(tmp_path, shell).ask("Which?", **{field: value}))
    assert (refused.value.field, shell.asked) == (field, [])
