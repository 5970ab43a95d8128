"""What the page about hosts shows is what happens."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from pisub.protocol.checkpoint import Answer, AskStatus
from pisub.record.layout import Layout
from pisub.record.model import OutcomeKind, QuestionOutcome
from pisub.record.questions import list_open_asks, record_outcome
from pisub.testing import ScriptedAnswer, load_answers
from tests.support.documents import ROOT, blocks
from tests.support.eventually import eventually
from tests.support.project import make_project

LEFT = Answer(value="left", by="test", at=1)
PAGE = ROOT / "docs/asking.md"


def test_its_program_runs_as_it_is_printed(tmp_path: Path) -> None:
    _, program = blocks(PAGE, "python")
    (tmp_path / "program.py").write_text(program.text)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "ok yes\n"), done.stderr


def test_a_program_that_is_not_the_host_answers_as_it_is_printed(tmp_path: Path) -> None:
    answering, _ = blocks(PAGE, "python")
    project = make_project(tmp_path / "project")
    run_id = project.launch("ask", "x", "--session", "builds")
    layout = Layout.of(project.settings)
    (ask,) = eventually(lambda: list_open_asks(layout), what="it asks")
    record_outcome(
        layout,
        run_id,
        QuestionOutcome(ask_id=ask.record.ask_id, number=1, kind=OutcomeKind.ANSWERED, answer=LEFT, at=1),
    )
    (tmp_path / "answering.py").write_text(f"import asyncio\n{answering.text}\nasyncio.run(main())\n")
    done = subprocess.run(
        [sys.executable, "answering.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert project.pisub("wait", run_id).code == 0
    assert project.pisub("result", run_id).out == "ok: ('left', 'yes')\n"


def test_its_script_is_read(tmp_path: Path) -> None:
    (script,) = blocks(PAGE, "yaml")
    (tmp_path / "answers.yaml").write_text(script.text)
    assert load_answers(tmp_path / "answers.yaml") == [
        ScriptedAnswer(match="Which", option=2, delay_ms=200),
        ScriptedAnswer(match="delete", dismiss=True),
        ScriptedAnswer(match="later", absent=True),
    ]


def test_its_lines_are_json() -> None:
    (lines,) = blocks(PAGE, "json")
    assert [msgspec.json.decode(line)["type"] for line in lines.text.splitlines()] == [
        "extension_ui_request",
        "extension_ui_response",
        "extension_ui_response",
    ]


@pytest.mark.parametrize("status", AskStatus)
def test_it_names_every_status(status: AskStatus) -> None:
    assert f"| `{status}` |" in PAGE.read_text(encoding="utf-8")
