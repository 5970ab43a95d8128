"""The demo, and the builtin agent as a user meets it."""

import sys
from pathlib import Path

import pytest

from pisub.cli.commands.demo import own_command
from tests.support.project import Project, make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


def test_the_demo_works_without_a_terminal_and_prints_the_report_s_path(project: Project) -> None:
    outcome = project.pisub("demo")
    assert outcome.code == 0, outcome.err
    report = Path(outcome.out.removesuffix("\n"))
    assert report.read_text(encoding="utf-8").startswith("# ")
    assert "agents_of_mine.py" in report.read_text(encoding="utf-8")
    assert "question 1 of 2 from surveyor" in outcome.err
    assert "question 2 of 2 from surveyor" in outcome.err
    assert "→ read files" in outcome.err
    (row,) = project.pisub("ps", "-a", "--json").json["runs"]
    assert (row["agent"], row["state"], row["label"]) == ("surveyor", "complete", "demo")


@pytest.mark.parametrize(
    ("argv0", "path", "expected"),
    [
        ("/somewhere/bin/pisub", "/nowhere", "/somewhere/bin/pisub"),
        ("HERE/.venv/bin/pisub", "/nowhere", ".venv/bin/pisub"),
        ("/with space/pisub", "/nowhere", "'/with space/pisub'"),
        ("HERE/pisub", "HERE", "pisub"),
        ("/lib/pisub/__main__.py", "/nowhere", "pisub"),
    ],
)
def test_what_it_says_to_call_next_is_a_command_that_works_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv0: str, path: str, expected: str
) -> None:
    (tmp_path / "pisub").touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [argv0.replace("HERE", str(tmp_path))])
    monkeypatch.setenv("PATH", path.replace("HERE", str(tmp_path)))
    assert own_command() == expected


def test_the_demo_surveys_another_directory_with_the_answers_of_a_file(project: Project, tmp_path: Path) -> None:
    other = tmp_path / "other place"
    (other / "src").mkdir(parents=True)
    (other / "src" / "main.py").write_text("print('hello')\n")
    answers = tmp_path / "answers.yaml"
    answers.write_text("- {match: Which part, answer: src/}\n- for the test\n")
    outcome = project.pisub("demo", str(other), "--answers", str(answers))
    assert outcome.code == 0, outcome.err
    text = Path(outcome.out.removesuffix("\n")).read_text(encoding="utf-8")
    assert "src/main.py" in text
    assert "for the test" in text


def test_answers_of_a_file_reach_the_child(project: Project, tmp_path: Path) -> None:
    answers = tmp_path / "answers.json"
    answers.write_text('[{"match": "Which", "option": 2}, {"match": "Why", "answer": "because"}]')
    outcome = project.pisub("run", "ask", "x", "--answers", str(answers))
    assert (outcome.code, outcome.out) == (0, "ok: ('right', 'because')\n")
    answers.write_text("just text")
    assert project.pisub("run", "ask", "x", "--answers", str(answers)).code == 2
