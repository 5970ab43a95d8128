"""Dialogs as JSON lines: what is sent, what is taken for a response, and what never is one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from pisub.hosting.dialogs import DialogContext
from pisub.hosting.stdio import StdioDialogs
from pisub.protocol.limits import MAX_STDIO_LINE_BYTES
from tests.support.eventually import HANG_S, eventually_async

CONTEXT = DialogContext(ask_id="a", run_id="01jabcdefghijk", agent="scout", why="to know", remaining_s=60.0, count=2)


class Ide:
    """The program at the other end."""

    def __init__(self) -> None:
        self._responses, self.write_end = os.pipe()
        self._read_end, self._requests = os.pipe()
        self.interrupts = 0
        self.dialogs = StdioDialogs(self._responses, self._requests, self._interrupted)
        self._buffer = b""

    def _interrupted(self) -> None:
        self.interrupts += 1

    async def line(self) -> Any:
        """Return the next line that the host sent."""
        while b"\n" not in self._buffer:
            async with asyncio.timeout(HANG_S):
                self._buffer += await asyncio.to_thread(os.read, self._read_end, 65_536)
        line, _, self._buffer = self._buffer.partition(b"\n")
        return msgspec.json.decode(line)

    async def says(self, line: bytes | dict[str, Any]) -> None:
        data = line if isinstance(line, bytes) else msgspec.json.encode(line)
        await asyncio.to_thread(self._write, data + b"\n")

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self.write_end, left) :]

    async def responds(self, ident: str, **fields: Any) -> None:
        await self.says({"type": "extension_ui_response", "id": ident, **fields})

    async def close(self) -> None:
        if self.write_end >= 0:
            os.close(self.write_end)
        self.write_end = -1
        await eventually_async(lambda: self.interrupts == 1)
        self.dialogs.close()
        for descriptor in (self._responses, self._read_end, self._requests):
            os.close(descriptor)


def play(scenario: Callable[[Ide], Awaitable[None]]) -> None:
    async def main() -> None:
        ide = Ide()
        async with asyncio.timeout(2 * HANG_S):
            await scenario(ide)
            await ide.close()

    asyncio.run(main())


def test_a_choice_and_a_text_are_requests_that_name_who_asks_and_end_with_their_responses() -> None:
    async def scenario(ide: Ide) -> None:
        choosing = asyncio.create_task(ide.dialogs.select("Which?", ("left", "right"), CONTEXT))
        request = await ide.line()
        assert request.pop("context")["question"] == "Which?"
        assert request == {
            "type": "extension_ui_request",
            "id": "a.1",
            "method": "select",
            "title": "scout asks · run 01jabcdefg · question 1 of 2\nto know\nWhich?",
            "options": ["left", "right"],
            "timeout": 60_000,
        }
        await ide.responds("a.1", value="right")
        assert await choosing == "right"
        second = DialogContext(ask_id="a", run_id="r", agent="scout", number=2, count=2)
        writing = asyncio.create_task(ide.dialogs.input("Why?", "a hint", second))
        request = await ide.line()
        assert (request["method"], request["placeholder"], "timeout" in request) == ("input", "a hint", False)
        assert request["context"]["runId"] == "r"
        await ide.responds("a.2", cancelled=True)
        assert await writing is None

    play(scenario)


def test_what_is_no_response_to_the_open_dialog_is_refused_with_a_code_and_the_dialog_stays() -> None:
    async def scenario(ide: Ide) -> None:
        choosing = asyncio.create_task(ide.dialogs.select("Which?", ("left", "right"), CONTEXT))
        await ide.line()
        response = {"type": "extension_ui_response", "id": "a.1"}
        bad: list[bytes | dict[str, Any]] = [
            b"{",
            b"\xff\xfe",
            b"7",
            b"[" * 100_000,
            b"x" * (MAX_STDIO_LINE_BYTES + 1),
            b"y" * (3 * MAX_STDIO_LINE_BYTES),
            {"type": "prompt"},
            {"type": "extension_ui_response", "value": "left"},
            {**response, "value": 1},
            {**response, "confirmed": True},
            {**response, "value": "left", "cancelled": True},
        ]
        for line in bad:
            await ide.says(line)
            assert (await ide.line())["code"] == "malformed", line
        assert ide.dialogs.malformed == len(bad)
        await ide.says(b"")
        for fields, code in (
            ({"id": "b.1", "value": "left"}, "unknown-dialog"),
            ({"value": "middle"}, "invalid-answer"),
        ):
            await ide.says({**response, **fields})
            error = await ide.line()
            assert (error["type"], error["code"]) == ("error", code)
        await ide.responds("a.1", value="left")
        assert await choosing == "left"
        await ide.responds("a.1", value="right")
        late = await ide.line()
        assert (late["code"], late["message"]) == ("closed", "The dialog is closed: it has its response.")
        assert ide.dialogs.refused == 3

    play(scenario)


def test_an_empty_text_is_no_answer() -> None:
    async def scenario(ide: Ide) -> None:
        writing = asyncio.create_task(ide.dialogs.input("Why?", "", CONTEXT))
        await ide.line()
        await ide.responds("a.1", value=" ")
        assert (await ide.line())["code"] == "invalid-answer"
        await ide.responds("a.1", value="because")
        assert await writing == "because"

    play(scenario)


def test_a_dialog_that_must_close_is_said_with_its_reason_and_a_late_response_never_answers_the_next() -> None:
    async def scenario(ide: Ide) -> None:
        first = asyncio.create_task(ide.dialogs.input("First?", "", CONTEXT))
        await ide.line()
        first.cancel("answered elsewhere")
        await asyncio.wait([first])
        assert await ide.line() == {"type": "extension_ui_cancel", "id": "a.1", "reason": "answered elsewhere"}
        second = asyncio.create_task(
            ide.dialogs.input("Second?", "", DialogContext(ask_id="b", run_id="r", agent="scout"))
        )
        await ide.line()
        await ide.responds("a.1", value="for the first")
        assert (await ide.line())["message"] == "The dialog is closed: answered elsewhere."
        assert not second.done()
        await ide.responds("b.1", value="for the second")
        assert await second == "for the second"

    play(scenario)


def test_how_many_wait_and_notices_are_lines_too() -> None:
    async def scenario(ide: Ide) -> None:
        ide.dialogs.show_waiting(2)
        ide.dialogs.notify("a run ended", "warning")
        common = {"type": "extension_ui_request"}
        assert await ide.line() == {
            **common,
            "id": "pisub.1",
            "method": "setStatus",
            "statusKey": "pisub.waiting",
            "statusText": "2 more waiting",
        }
        notice = {"id": "pisub.2", "method": "notify", "message": "a run ended", "notifyType": "warning"}
        assert await ide.line() == {**common, **notice}

    play(scenario)


def test_the_end_of_the_input_interrupts_the_host_and_answers_nothing() -> None:
    async def scenario(ide: Ide) -> None:
        asking = asyncio.create_task(ide.dialogs.input("Why?", "", CONTEXT))
        await ide.line()
        await ide.responds("a.1", value="whole")
        assert await asking == "whole"
        asking = asyncio.create_task(ide.dialogs.input("Why?", "", CONTEXT))
        await ide.line()
        os.close(ide.write_end)
        ide.write_end = -1
        await eventually_async(lambda: ide.interrupts)
        assert not asking.done()
        asking.cancel()
        await asyncio.wait([asking])

    play(scenario)
