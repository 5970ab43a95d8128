"""The dialogs in a real terminal: another process, a pseudo-terminal, keys as a person sends them."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pisub.config import caller_environment
from tests.support.eventually import HANG_S

_ASKER = """
import asyncio, sys
from pathlib import Path
from pisub.hosting.dialogs import DialogContext
from pisub.hosting.terminal import TerminalDialogs

async def main():
    dialogs = TerminalDialogs()
    context = DialogContext(ask_id="a", run_id="01jabcdefghijk", agent="scout", count=2, remaining_s=180.0)
    first = await dialogs.select("Which part?", ("core", "shell"), context)
    closing = asyncio.create_task(dialogs.input("Never mind?", "", context))
    await asyncio.sleep(0.3)
    closing.cancel("answered elsewhere")
    await asyncio.wait([closing])
    second = await dialogs.input("What for?", "a purpose", context)
    third = await dialogs.select("Last?", ("yes", "no"), context)
    try:
        fourth = await dialogs.select("Once more?", ("left", "right"), context)
    except asyncio.CancelledError:
        fourth = "interrupted"
    Path(sys.argv[1]).write_text(repr((first, second, third, fourth)))

asyncio.run(main())
print("over")
"""


class Terminal:
    """A person at a pseudo-terminal."""

    def __init__(self, result: Path, **environ: str) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _ASKER, str(result)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**caller_environment(), **environ},
            start_new_session=True,
        )
        os.close(slave)
        self.raw = b""

    @property
    def text(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.raw.decode("utf-8", "replace")).replace("\r", "")

    def sees(self, wanted: str) -> None:
        """Read until a text is on the screen."""
        end = time.monotonic() + HANG_S
        while wanted not in self.text:
            readable, _, _ = select.select([self.master], [], [], max(0.0, end - time.monotonic()))
            assert readable, f"{wanted!r} never came; seen: {self.text[-2000:]}"
            try:
                self.raw += os.read(self.master, 65_536)
            except OSError:
                raise AssertionError(f"the terminal ended without {wanted!r}: {self.text[-2000:]}") from None

    def types(self, keys: str, *, after_s: float = 0.0) -> None:
        """Type, not before a person could have read the question."""
        select.select([], [], [], after_s)
        os.write(self.master, keys.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def result(tmp_path: Path) -> Path:
    return tmp_path / "result"


@pytest.fixture(params=[{}, {"NO_COLOR": "1"}], ids=["colour", "no-colour"])
def drawn(request: pytest.FixtureRequest, result: Path) -> Iterator[Terminal]:
    terminal = Terminal(result, TERM="xterm-256color", **request.param)
    yield terminal
    terminal.close()


def test_arrows_text_escape_and_ctrl_c_in_a_drawn_terminal(drawn: Terminal, result: Path) -> None:
    drawn.sees("scout asks · run 01jabcdefg · question 1 of 2")
    drawn.sees("left · ↑↓ or digits")
    drawn.types("\x1b[B\r", after_s=0.4)
    drawn.sees("✓ shell")
    drawn.sees("✗ closed: answered elsewhere")
    drawn.sees("What for?")
    drawn.sees("(a purpose)")
    drawn.types("to see grün\r", after_s=0.4)
    drawn.sees("✓ to see grün")
    drawn.sees("Last?")
    drawn.sees("2. no")
    drawn.types("\x1b", after_s=0.4)
    drawn.sees("✗ dismissed")
    drawn.sees("2. right")
    drawn.types("\x03", after_s=0.4)
    drawn.sees("✗ closed: no longer needed")
    drawn.sees("over")
    assert drawn.process.wait(HANG_S) == 0
    assert result.read_text() == "('shell', 'to see grün', None, 'interrupted')"


def test_no_color_means_no_colour(result: Path) -> None:
    terminal = Terminal(result, TERM="xterm-256color", NO_COLOR="1")
    try:
        terminal.sees("left · ↑↓ or digits")
        colours = re.findall(rb"\x1b\[(?:\d+;)*(?:3[0-7]|38|4[0-7]|48|9[0-7])(?:;\d+)*m", terminal.raw)
        assert colours == []
    finally:
        terminal.close()


def test_numbers_and_lines_in_a_terminal_that_can_only_print(result: Path) -> None:
    terminal = Terminal(result, TERM="dumb")
    try:
        terminal.sees("2. shell")
        terminal.sees("(1-2)] > ")
        terminal.types("7\n", after_s=0.1)
        terminal.sees("a number from 1 to 2, please")
        terminal.types("2\n")
        terminal.sees("✓ shell")
        terminal.sees("✗ closed: answered elsewhere")
        terminal.sees("What for?")
        terminal.sees("a purpose; an empty line dismisses] > ")
        terminal.types("to see\n", after_s=0.1)
        terminal.sees("✓ to see")
        terminal.sees("1. yes")
        terminal.sees("(1-2)] > ")
        terminal.types("\n", after_s=0.3)
        terminal.sees("✗ dismissed")
        terminal.sees("2. right")
        terminal.types("1\n", after_s=0.3)
        terminal.sees("✓ left")
        terminal.sees("over")
        assert terminal.process.wait(HANG_S) == 0
        assert result.read_text() == "('shell', 'to see', None, 'left')"
        assert b"\x1b" not in terminal.raw
    finally:
        terminal.close()
