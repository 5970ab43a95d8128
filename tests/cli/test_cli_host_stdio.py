"""``pisub host --stdio``: an IDE at the other end answers a child, in real processes."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.eventually import HANG_S
from tests.support.project import Project, make_project

SESSION = "ide-session"


class Ide:
    """A program that started ``pisub host --stdio`` and reads its lines."""

    def __init__(self, project: Project) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pisub", "host", "--session", SESSION, "--stdio"],
            cwd=project.root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[dict[str, Any]] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(json.loads(line))  # every line is JSON: what is not ends the test by a missing line

    def line(self, kind: str, *, skip: tuple[str, ...] = ("setStatus",)) -> dict[str, Any]:
        """Return the next line that is no status; it must be of this method or type."""
        while True:
            line = self._lines.get(timeout=HANG_S)
            if line.get("method") not in skip:
                assert line.get("method", line["type"]) == kind, line
                return line

    def says(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def responds(self, ident: str, **fields: Any) -> None:
        self.says(json.dumps({"type": "extension_ui_response", "id": ident, **fields}))

    def hangs_up(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(HANG_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


@pytest.fixture
def ide(project: Project) -> Iterator[Ide]:
    ide = Ide(project)
    yield ide
    ide.close()


def launch(project: Project) -> str:
    done = project.pisub("run", "-d", "--session", SESSION, "ask", "x")
    assert done.code == 0, done.err
    return done.out.strip()


def test_an_ide_answers_a_child_and_hears_of_its_end(project: Project, ide: Ide) -> None:
    assert ide.line("notify")["message"] == f"host of session {SESSION}"
    run_id = launch(project)
    first = ide.line("select")
    assert (first["options"], first["context"]["runId"], first["context"]["question"]) == (
        ["left", "right"],
        run_id,
        "Which?",
    )
    ide.says("no json")
    assert ide.line("error")["code"] == "malformed"
    ide.responds(first["id"], value="up")
    assert ide.line("error")["code"] == "invalid-answer"
    ide.responds(first["id"], value="left")
    second = ide.line("input")
    ide.responds(first["id"], value="right")
    assert ide.line("error")["code"] == "closed"
    ide.responds(second["id"], value="it was near")
    end = ide.line("notify")
    assert end["notifyType"] == "info"
    assert run_id in end["message"]
    assert project.pisub("result", run_id).out == "ok: ('left', 'it was near')\n"
    assert ide.hangs_up() == 0


def test_an_answer_from_elsewhere_closes_the_ide_s_dialog_and_what_it_leaves_open_stays_so(
    project: Project, ide: Ide
) -> None:
    ide.line("notify")
    run_id = launch(project)
    first = ide.line("select")
    assert project.pisub("answer", first["id"], "right").code == 0
    assert ide.line("extension_ui_cancel") == {
        "type": "extension_ui_cancel",
        "id": first["id"],
        "reason": "answered elsewhere",
    }
    second = ide.line("input")
    assert ide.hangs_up() == 0
    assert project.pisub("answer", second["id"], "because").code == 0
    assert project.pisub("wait", run_id).code == 0
    assert project.pisub("result", run_id).out == "ok: ('right', 'because')\n"


def test_standard_output_is_the_protocol_s_alone(project: Project) -> None:
    refused = project.pisub("host", "--stdio", "--json")
    assert refused.code == 2
    assert "leave --json out" in refused.out + refused.err
