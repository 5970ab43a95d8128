"""Every example is run as its page says, and type-checks as a user's program would."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import ROOT, commands
from tests.support.project import Project

EXAMPLES = ROOT / "examples"


@pytest.fixture
def copy(tmp_path: Path) -> Project:
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "README.md", tmp_path)
    return Project(tmp_path)


def test_the_commands_of_the_examples_do_what_their_page_says(copy: Project) -> None:
    answers = copy.root / "answers.json"
    answers.write_text('["heron", "it flies"]')
    outputs = []
    for words in commands(EXAMPLES / "README.md"):
        extra = ["--answers", str(answers)] if "namer" in words else []
        outcome = copy.pisub(*words[1:], *extra)
        assert outcome.code == 0, outcome.err
        outputs.append(outcome.out)
    assert outputs[1] == "heron, because it flies\n"
    counted = outputs[3].split()
    expected = (ROOT / "README.md").read_bytes()
    assert counted == [str(expected.count(b"\n")), str(len(expected.split())), str(len(expected))]
    assert outputs[5] == "18 words in 3 parts: 7, 7, 4\n"
    rows = [line.split() for line in outputs[6].splitlines()]
    assert [row[0] for row in rows].count("└") == 3, outputs[6]


def test_the_program_that_delegates_answers_and_prints_the_result(copy: Project) -> None:
    project = copy.root / "examples/naming"
    assert copy.pisub("trust", str(project), "--yes").code == 0
    done = subprocess.run(
        [sys.executable, "delegate.py", "a", "boat"],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("namer")] == [
        "namer asks 1 of 2: Which name?",
        "namer asks 2 of 2: Why?",
    ]
    assert lines[-1] == "otter, because it was there first"


def test_the_server_keeps_a_session_with_work_until_its_end_was_told(copy: Project) -> None:
    project = copy.root / "examples/reaper"
    assert copy.pisub("trust", str(project), "--yes").code == 0
    done = subprocess.run(
        [sys.executable, "reaper.py"], cwd=project, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["reaped: empty", "kept: busy", "busy: nap complete", "reaped: busy"]
