"""Commands that ask, in a real terminal: what is shown when, and what Ctrl-C means there."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pisub.cli.exits import Exit
from pisub.config import caller_environment
from tests.support.eventually import HANG_S
from tests.support.project import Project, make_project


class Terminal:
    """A person at a terminal in which one command runs."""

    def __init__(self, project: Project, *arguments: str, term: str = "xterm") -> None:
        self._master, self._slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pisub", *arguments],
            cwd=project.root,
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env={**caller_environment(), "TERM": term, "NO_COLOR": "1"},
            start_new_session=True,
        )
        self._raw = b""

    @property
    def text(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._raw.decode("utf-8", "replace")).replace("\r", "")

    @property
    def takes_lines(self) -> bool:
        """Whether it is in line mode, with echo and signals, as a shell leaves it."""
        modes = termios.tcgetattr(self._slave)[3]
        return all(modes & each for each in (termios.ICANON, termios.ECHO, termios.ISIG))

    def sees(self, wanted: str) -> None:
        end = time.monotonic() + HANG_S
        while wanted not in self.text:
            readable, _, _ = select.select([self._master], [], [], max(0.0, end - time.monotonic()))
            assert readable, f"{wanted!r} never came; seen: {self.text[-2000:]}"
            self._raw += os.read(self._master, 65_536)

    def types(self, keys: str, *, after_s: float = 0.0) -> None:
        """Type, not before a person could have read the question: a dialog takes no earlier key for an answer."""
        select.select([], [], [], after_s)
        os.write(self._master, keys.encode())

    def hang_up(self) -> None:
        """Close the window."""
        os.close(self._master)
        self._master = -1

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for each in (self._master, self._slave):
            if each >= 0:
                os.close(each)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


@pytest.fixture
def terminal(project: Project) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*arguments: str, term: str = "xterm") -> Terminal:
        opened.append(Terminal(project, *arguments, term=term))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def test_what_led_to_a_question_is_shown_before_it(terminal: Callable[..., Terminal]) -> None:
    asking = terminal("run", "ask", "x")
    asking.sees("Enter chooses")
    shown = asking.text
    assert shown.index("run 0") < shown.index("started") < shown.index("asks you 2 questions") < shown.index("Which?")


def test_ctrl_c_in_a_dialog_stops_the_foreground_run(terminal: Callable[..., Terminal], project: Project) -> None:
    asking = terminal("run", "ask", "x")
    asking.sees("Enter chooses")
    asking.types("\x03")
    asking.sees("✗ closed")
    asking.sees("stopping the run")
    asking.sees("hint:")
    assert asking.process.wait(HANG_S) == Exit.STOPPED
    (row,) = project.pisub("ps", "-a", "--json").json["runs"]
    assert row["state"] == "stopped"


def test_leaving_at_once_from_a_dialog_gives_the_terminal_back(terminal: Callable[..., Terminal]) -> None:
    asking = terminal("run", "ask", "x")
    asking.sees("Enter chooses")
    assert not asking.takes_lines
    # Both arrive before a dialog can close: the process is held while they are sent.
    asking.process.send_signal(signal.SIGSTOP)
    asking.types("\x03\x03")
    asking.process.send_signal(signal.SIGCONT)
    assert asking.process.wait(HANG_S) == Exit.INTERRUPTED
    assert asking.takes_lines


def test_a_host_says_what_it_is_before_it_asks_and_ctrl_c_leaves_the_question_open(
    terminal: Callable[..., Terminal], project: Project
) -> None:
    run_id = project.launch("ask")
    finished = project.launch("echo", "a word")
    project.pisub("wait", finished)
    hosting = terminal("host")
    hosting.sees("Enter chooses")
    shown = hosting.text
    assert shown.index("Ctrl-C stops looking") < shown.index("host of session") < shown.index("Which?")
    hosting.types("\x03")
    hosting.sees("✗ closed")
    assert hosting.process.wait(HANG_S) == Exit.OK
    assert hosting.text.index("Which?") < hosting.text.index("✗ closed")
    questions = project.pisub("questions", "--json").json["questions"]
    assert [(each["runId"], each["number"]) for each in questions] == [(run_id, 1), (run_id, 2)]
    project.pisub("stop", run_id)


@pytest.mark.parametrize(("term", "last"), [("xterm", "Enter chooses"), ("dumb", "(1-2)] > ")])
def test_a_host_whose_terminal_is_closed_leaves_the_question_open(
    terminal: Callable[..., Terminal], project: Project, term: str, last: str
) -> None:
    run_id = project.launch("ask")
    hosting = terminal("host", term=term)
    hosting.sees(last)
    hosting.hang_up()
    assert hosting.process.wait(HANG_S) == Exit.OK
    questions = project.pisub("questions", "--json").json["questions"]
    assert [(each["runId"], each["number"]) for each in questions] == [(run_id, 1), (run_id, 2)]
    project.pisub("stop", run_id)


@pytest.mark.parametrize("command", [("trust", "."), ("run", "echo", "x")])
def test_an_agent_that_is_changed_while_the_question_is_open_is_not_trusted_by_the_yes(
    terminal: Callable[..., Terminal], project: Project, command: tuple[str, ...]
) -> None:
    definition = project.root / ".pisub/agents/echo.md"
    definition.write_text(definition.read_text().replace("description:", "description: new,"))
    asking = terminal(*command)
    asking.sees("[y/N]")
    definition.write_text(definition.read_text().replace("description:", "description: evil,"))
    asking.types("y\n")
    asking.sees("changed while they were looked at")
    assert asking.process.wait(HANG_S) == Exit.UNTRUSTED
    assert project.pisub("run", "echo", "x").code == Exit.UNTRUSTED


def test_a_table_in_a_pipe_has_no_colours_though_the_terminal_may_have(project: Project) -> None:
    project.pisub("wait", project.launch("echo"))
    master, slave = pty.openpty()
    try:
        environ = {**caller_environment(), "TERM": "xterm"}
        environ.pop("NO_COLOR", None)
        for command in ("ps", "doctor"):
            arguments = [sys.executable, "-m", "pisub", command, *(["-a"] if command == "ps" else [])]
            done = subprocess.run(
                arguments, cwd=project.root, stdin=slave, stdout=subprocess.PIPE, stderr=slave, env=environ, check=False
            )
            assert done.stdout
            assert b"\x1b" not in done.stdout
    finally:
        os.close(master)
        os.close(slave)


def test_an_end_that_comes_while_a_dialog_is_open_is_shown_after_it(
    terminal: Callable[..., Terminal], project: Project
) -> None:
    run_id = project.launch("ask")
    hosting = terminal("host")
    hosting.sees("Enter chooses")
    project.pisub("wait", project.launch("echo", "a word"))
    hosting.types("2\r", after_s=0.4)
    hosting.sees("Enter answers")
    hosting.types("because\r", after_s=0.4)
    hosting.sees(f"run {run_id} (ask) complete")
    hosting.sees("(echo) complete")
    assert hosting.text.index("✓ right") < hosting.text.index("(echo) complete")
