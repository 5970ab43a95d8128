"""The supervisor's tool of a model's loop, against a record on disk and a supervisor that replies at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pisub.child import Child
from pisub.record.layout import Layout
from pisub.record.supervisor import list_requests, reply_to_request
from pisub.supervisor_tool import call_tool, tool_definition
from tests.support.engine_shell import RecordingShell, context
from tests.support.eventually import eventually_async
from tests.support.loops import in_loop

RUN = "0" * 26


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout(tmp_path / "home")
    made.prepare()
    made.run(RUN).dir.mkdir(mode=0o700)
    return made


def child_of(layout: Layout) -> Child:
    told = context(layout.run(RUN).dir)
    return Child(
        msgspec.structs.replace(told, run_id=RUN, artifacts_dir=str(layout.run(RUN).artifacts)), RecordingShell()
    )


async def replied(layout: Layout, arguments: dict[str, Any], reply: str) -> dict[str, Any]:
    task = asyncio.create_task(call_tool(child_of(layout), arguments))
    [request] = await eventually_async(lambda: list_requests(layout, "session", now_ms=0), what="it waits")
    reply_to_request(layout, request, reply, now_ms=5)
    assert list_requests(layout, "session", now_ms=0) == []
    return await task


@in_loop
async def test_a_decision_an_interview_and_an_update_have_the_contract_s_results(layout: Layout) -> None:
    assert await replied(layout, {"reason": "need_decision", "message": "a?"}, "yes") == {"reply": "yes"}
    interview = {"reason": "interview_request", "interview": {"q": 1}}
    assert await replied(layout, interview, '{"a": 2}') == {"reply": '{"a": 2}', "structuredReply": {"a": 2}}
    unparsed = await replied(layout, interview, "no")
    assert sorted(unparsed) == ["reply", "structuredReplyParseError"]
    update = {"reason": "progress_update", "message": "half"}
    assert await call_tool(child_of(layout), update) == {"delivered": True}
    assert [each.message for each in list_requests(layout, "session", now_ms=0)] == ["half"]


@in_loop
async def test_what_is_wrong_is_said_and_nothing_is_written(layout: Layout) -> None:
    for arguments in (
        {},
        {"reason": "x"},
        {"reason": "need_decision"},
        {"reason": "need_decision", "message": "m", "x": 1},
    ):
        assert list(await call_tool(child_of(layout), arguments)) == ["error"], arguments
    assert list_requests(layout, "session", now_ms=0) == []
    assert tool_definition()["input_schema"]["properties"]["reason"]["enum"] == [
        "need_decision",
        "interview_request",
        "progress_update",
    ]
