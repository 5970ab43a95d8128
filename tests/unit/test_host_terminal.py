"""The terminal's dialogs: keys in, what is drawn out. A pipe stands for the keyboard, a text for the screen."""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

import pytest
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput
from prompt_toolkit.output.vt100 import Vt100_Output

from pisub.errors import InvalidArgumentError
from pisub.hosting.dialogs import DialogContext, Dialogs
from pisub.hosting.terminal import TerminalDialogs, header
from tests.support.eventually import eventually_async

T = TypeVar("T")
CONTEXT = DialogContext(ask_id="a", run_id="01jabcdefghijk", agent="scout", session_id="s")
UP, DOWN, ESCAPE, CTRL_C, ENTER, ALT_ENTER = "\x1b[A", "\x1b[B", "\x1b", "\x03", "\r", "\x1b\r"


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True

    @property
    def text(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.getvalue()).replace("\r", "")


def run(work: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(20):
            return await work

    return asyncio.run(bounded())


def choose(keys: str, *options: str) -> str | None:
    with create_pipe_input() as keyboard:
        dialogs = TerminalDialogs(input=keyboard, output=DummyOutput(), settle_s=0)
        keyboard.send_text(keys)
        return run(dialogs.select("Which?", options or ("left", "right", "both"), CONTEXT))


def write(keys: str) -> str | None:
    with create_pipe_input() as keyboard:
        dialogs = TerminalDialogs(input=keyboard, output=DummyOutput(), settle_s=0)
        keyboard.send_text(keys)
        return run(dialogs.input("Why?", "a reason", CONTEXT))


def drawn(keys: str, title: str, context: DialogContext, *options: str) -> str:
    screen = Screen()
    output = Vt100_Output(screen, lambda: Size(rows=40, columns=100), term="xterm")
    with create_pipe_input() as keyboard:
        dialogs = TerminalDialogs(input=keyboard, output=output, settle_s=0)
        keyboard.send_text(keys)
        run(dialogs.select(title, options or ("left", "right"), context))
    return screen.text


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (ENTER, "left"),
        (DOWN + ENTER, "right"),
        (UP + ENTER, "both"),
        (DOWN * 3 + ENTER, "left"),
        ("2" + ENTER, "right"),
        ("27" + ENTER, "right"),
        ("31" + ENTER, "left"),
        ("9" + ENTER, "left"),
        ("x" + ENTER, "left"),
        (ESCAPE, None),
    ],
)
def test_arrows_and_digits_move_and_only_enter_chooses(keys: str, answer: str | None) -> None:
    assert choose(keys) == answer


def test_two_digits_reach_the_twelfth_option() -> None:
    assert choose("12" + ENTER, *(f"option {n}" for n in range(1, 16))) == "option 12"


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        ("because" + ENTER, "because"),
        ("one" + ALT_ENTER + "two" + ENTER, "one\ntwo"),
        (ENTER + "late" + ENTER, "late"),
        ("  " + ENTER + "x" + ENTER, "  x"),
        ("half" + ESCAPE, None),
        ("grün 漢字" + ENTER, "grün 漢字"),
    ],
)
def test_text_is_taken_as_written_and_an_empty_one_never(keys: str, answer: str | None) -> None:
    assert write(keys) == answer


def test_ctrl_c_answers_nothing_and_is_passed_on() -> None:
    interrupts: list[str] = []
    with create_pipe_input() as keyboard:
        dialogs = TerminalDialogs(
            input=keyboard, output=DummyOutput(), settle_s=0, interrupt=lambda: interrupts.append("once")
        )
        keyboard.send_text(CTRL_C + DOWN + ENTER)
        assert run(dialogs.select("Which?", ("left", "right"), CONTEXT)) == "right"
        keyboard.send_text("half" + CTRL_C + ENTER)
        assert run(dialogs.input("Why?", "", CONTEXT)) == "half"
    assert interrupts == ["once", "once"]


def test_a_dialog_says_who_asks_why_and_how_long_there_is() -> None:
    context = DialogContext(
        ask_id="a",
        run_id="01jabcdefghijk",
        agent="scout",
        label="left half",
        depth=2,
        why="to go on",
        number=1,
        count=3,
        waiting=4,
        remaining_s=125.9,
        session_id="s",
    )
    shown = drawn(ENTER, "Which?", context)
    assert header(context) in shown
    assert "scout (left half) asks · run 01jabcdefg · depth 2 · question 1 of 3 · 4 more waiting" in shown
    assert "to go on" in shown
    assert "2:05 left" in shown
    assert "✓ left" in shown


def test_what_a_child_writes_cannot_steer_the_terminal() -> None:
    shown = drawn(ENTER, "Wh\x1b[2Jich\x07 \u202eone?", CONTEXT, "a\x1b[31mb", "c\nd")
    assert "Wh␛[2Jich␇ <U+202E>one?" in shown
    assert "1. a␛[31mb" in shown
    assert "2. c␊d" in shown


def test_keys_that_were_typed_before_the_dialog_could_be_read_answer_nothing() -> None:
    async def scenario(keyboard: PipeInput) -> str | None:
        dialogs: Dialogs = TerminalDialogs(input=keyboard, output=DummyOutput(), settle_s=0.3)
        keyboard.send_text("too early" + ENTER)
        asked = asyncio.create_task(dialogs.input("Why?", "", CONTEXT))
        done, _ = await asyncio.wait([asked], timeout=0.5)
        assert not done
        keyboard.send_text("in time" + ENTER)
        return await asked

    with create_pipe_input() as keyboard:
        assert run(scenario(keyboard)) == "in time"


def test_a_dialog_that_must_close_says_why() -> None:
    screen = Screen()
    output = Vt100_Output(screen, lambda: Size(rows=40, columns=100), term="xterm")

    async def scenario(keyboard: PipeInput) -> bool:
        dialogs = TerminalDialogs(input=keyboard, output=output, settle_s=0)
        asked = asyncio.create_task(dialogs.select("Which?", ("l", "r"), CONTEXT))
        await eventually_async(lambda: "Esc dismisses" in screen.text)
        asked.cancel("answered elsewhere")
        await asyncio.wait([asked], timeout=1)
        assert asked.cancelled()
        keyboard.send_text(DOWN + ENTER)  # the terminal is as before: the next dialog works
        return await dialogs.select("And?", ("l", "r"), CONTEXT) == "r"

    with create_pipe_input() as keyboard:
        assert run(scenario(keyboard))
    assert "✗ closed: answered elsewhere" in screen.text


async def _ticks() -> AsyncIterator[int]:
    for tick in range(3):
        await asyncio.to_thread(int)
        yield tick


def test_the_loop_goes_on_while_a_dialog_is_open() -> None:
    async def scenario(keyboard: PipeInput) -> list[int]:
        dialogs = TerminalDialogs(input=keyboard, output=DummyOutput(), settle_s=0)
        asked = asyncio.create_task(dialogs.input("Why?", "", CONTEXT))
        ticks = [tick async for tick in _ticks()]
        assert not asked.done()
        keyboard.send_text("x" + ENTER)
        assert await asked == "x"
        return ticks

    with create_pipe_input() as keyboard:
        assert run(scenario(keyboard)) == [0, 1, 2]


def test_without_a_terminal_there_is_nobody_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(f"sys.{name}", io.StringIO())
    with pytest.raises(InvalidArgumentError, match="no terminal"):
        TerminalDialogs()
