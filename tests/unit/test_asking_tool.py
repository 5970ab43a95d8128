"""The tool of a model's loop: what it is told, what it may say, and that a mistake of its is an answer, not a crash."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pisub.agents.definition import may_ask
from pisub.asking_tool import call_tool, tool_definition
from pisub.child import Child
from pisub.engines.base import AskTimes
from pisub.errors import RefusedError
from pisub.protocol.checkpoint import Answer, AskResult, AskStatus
from tests.support.engine_shell import RecordingShell, context

OK = AskResult(status=AskStatus.OK, answers=(Answer(value="eu", by="host:1", at=1),))


def call(child: Child, arguments: Any) -> dict[str, Any]:
    return asyncio.run(call_tool(child, arguments))


def test_who_may_not_ask_has_no_such_tool(tmp_path: Path) -> None:
    child = Child(context(tmp_path, can_ask=False), RecordingShell())
    assert tool_definition(child) is None
    with pytest.raises(RefusedError):
        call(child, {"questions": [{"text": "?"}]})


def test_the_definition_names_the_tool_and_its_bounds(tmp_path: Path) -> None:
    found = tool_definition(Child(context(tmp_path), RecordingShell()))
    assert found is not None
    assert (found["name"], found["input_schema"]["required"]) == ("ask_user_via_host", ["questions"])
    questions = found["input_schema"]["properties"]["questions"]
    assert (questions["minItems"], questions["maxItems"]) == (1, 32)
    assert set(questions["items"]["properties"]) == {"text", "options", "placeholder"}


def test_a_call_asks_and_its_result_is_plain_json(tmp_path: Path) -> None:
    shell = RecordingShell(OK)
    child = Child(context(tmp_path), shell)
    result = call(child, {"questions": [{"text": "Where?", "options": ["eu", "us"]}], "why": "to deploy"})
    assert result == {"status": "ok", "answers": ["eu"], "reason": ""}
    [(questions, why)] = shell.asked
    assert [(each.text, each.options, why) for each in questions] == [("Where?", ("eu", "us"), "to deploy")]


def test_how_long_it_may_take_is_the_program_s_to_say_not_the_model_s(tmp_path: Path) -> None:
    shell = RecordingShell(OK)
    child = Child(context(tmp_path), shell)
    asyncio.run(call_tool(child, {"questions": [{"text": "?"}]}, timeout_s=None, question_timeout_s=20))
    assert shell.times == [AskTimes(timeout_ms=None, question_timeout_ms=20_000)]
    assert call(child, {"questions": [{"text": "?"}], "timeout_s": 1_000})["status"] == "invalid"


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"questions": []},
        {"questions": "Where?"},
        {"questions": [{"text": ""}]},
        {"questions": [{"text": "?", "options": ["only"]}]},
        {"questions": [{"text": "?", "options": ["a", "a"]}]},
        {"questions": [{"text": "?", "more": 1}]},
        {"questions": [{"text": "?"}], "why": 3},
        {"questions": [{"text": "?"}] * 33},
    ],
)
def test_what_is_wrong_is_said_and_nobody_is_asked(tmp_path: Path, arguments: dict[str, Any]) -> None:
    shell = RecordingShell(OK)
    result = call(Child(context(tmp_path), shell), arguments)
    assert (result["status"], result["answers"], shell.asked) == ("invalid", [], [])
    assert result["reason"]


def test_a_limit_takes_the_right_to_ask_and_none_gives_it() -> None:
    assert may_ask(True)
    assert may_ask(True, True)
    assert not may_ask(True, True, False)
    assert not may_ask(False, True)
