"""The dialogs in tmux: a terminal that a person could sit at, with a screen that is looked at, not a stream."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pisub.config import caller_environment
from tests.support.eventually import eventually
from tests.support.project import Project, make_project

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Tmux:
    """A server of its own, with one window in which one command runs."""

    def __init__(self, socket: Path, project: Project, *arguments: str) -> None:
        self._socket = str(socket)
        self._do("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", "-c", str(project.root),
                 sys.executable, "-m", "pisub", *arguments,
                 ";", "set-option", "-g", "remain-on-exit", "on")  # fmt: skip

    def _do(self, *arguments: str) -> str:
        environ = {**caller_environment(), "TERM": "xterm-256color"}
        done = subprocess.run(
            ["tmux", "-S", self._socket, *arguments], capture_output=True, text=True, env=environ, check=True
        )
        return done.stdout

    @property
    def screen(self) -> str:
        return self._do("capture-pane", "-p")

    def sees(self, *wanted: str) -> None:
        eventually(lambda: all(each in self.screen for each in wanted), what=f"{wanted} on the screen")

    def types_until(self, wanted: str, *keys: str) -> None:
        """Press keys until the screen shows what they do: a young dialog ignores what was typed before it was read."""

        def shown() -> bool:
            if wanted not in self.screen:
                self._do("send-keys", *keys)
            return wanted in self.screen

        eventually(shown, what=f"{wanted} after {keys}")

    def types(self, *keys: str) -> None:
        self._do("send-keys", *keys)

    def close(self) -> None:
        subprocess.run(["tmux", "-S", self._socket, "kill-server"], capture_output=True, check=False)


@pytest.fixture
def open_tmux(private_places: Path, tmp_path: Path) -> Iterator[Callable[..., Tmux]]:
    opened: list[Tmux] = []
    project = make_project(tmp_path / "project")

    def start(*arguments: str) -> Tmux:
        opened.append(Tmux(private_places / "tmux", project, *arguments))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def test_a_foreground_run_asks_in_the_terminal_and_is_answered_by_arrows_and_text(
    open_tmux: Callable[..., Tmux],
) -> None:
    terminal = open_tmux("run", "--label", "mine", "ask", "x")
    terminal.sees("ask (mine) asks", "question 1 of 2", "to choose", "Which?", ">  1. left", "left · ")
    terminal.types_until(">  2. right", "2")
    terminal.types("Up")
    terminal.sees(">  1. left")
    terminal.types("Down")
    terminal.sees(">  2. right")
    terminal.types("Enter")
    terminal.sees("✓ right", "question 2 of 2", "Why?")
    terminal.types_until("> b", "b")
    terminal.types("ecause", "Enter")
    terminal.sees("✓ b", "ecause", "ok: ('right', 'b")
