"""What the documents show is what happens: their commands parse, their examples run, their links lead somewhere."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pisub.cli.parser import build_parser
from pisub.testing import ScriptedAnswer, load_answers
from tests.support.documents import ROOT, blocks, commands, documents
from tests.support.eventually import eventually
from tests.support.project import Project, make_project

README = ROOT / "README.md"
PAGES = [pytest.param(path, id=path.relative_to(ROOT).as_posix()) for path in documents()]
MAKEFILE = (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("page", PAGES)
def test_every_command_shown_is_one_that_exists(page: Path) -> None:
    for words in commands(page):
        match words:
            case ["echo", _, "|", "pisub", *arguments] | ["pisub", *arguments]:
                build_parser().parse_args(arguments)
            case ["make", target]:
                assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target
            case ["python", "-m", "benchmarks", name, *_]:
                assert name == "all" or (ROOT / "benchmarks" / f"{name}.py").exists(), name
            case _:
                pytest.fail(f"{page.name} shows a command of a kind that no test knows: {words}")


@pytest.mark.parametrize("page", PAGES)
def test_every_python_example_parses(page: Path) -> None:
    for block in blocks(page, "python"):
        ast.parse(block.text)


@pytest.mark.parametrize("page", PAGES)
def test_every_link_inside_the_project_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_the_readme_s_program_runs_as_it_is_printed(tmp_path: Path) -> None:
    agent, program = blocks(README, "python")
    (definition,) = blocks(README, "markdown")
    (tmp_path / ".pisub/agents").mkdir(parents=True)
    (tmp_path / ".pisub/agents/namer.md").write_text(definition.text)
    (tmp_path / "agents.py").write_text(agent.text)
    (tmp_path / "program.py").write_text(program.text)
    project = Project(tmp_path)
    assert project.pisub("trust", ".", "--yes").code == 0
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "complete otter, because it swims"
    assert {"subagent.run.started", "subagent.tool.started", "subagent.ask.closed"} <= set(lines)


def test_the_page_about_agents_shows_a_file_a_script_and_a_program_that_work(tmp_path: Path) -> None:
    page = ROOT / "docs/agents.md"
    (definition,), (script,), (program,) = (blocks(page, language) for language in ("markdown", "yaml", "python"))
    (tmp_path / "answers.yaml").write_text(script.text)
    assert load_answers(tmp_path / "answers.yaml") == [
        "yes, go on",
        ScriptedAnswer(match="Which part", option=2),
        ScriptedAnswer(match="Why", answer="because", delay_ms=500),
        ScriptedAnswer(match="delete", dismiss=True),
    ]
    (tmp_path / ".pisub/agents").mkdir(parents=True)
    (tmp_path / ".pisub/agents/namer.md").write_text(definition.text)
    (tmp_path / "agents.py").write_text(blocks(README, "python")[0].text)
    (tmp_path / "program.py").write_text(program.text)
    assert Project(tmp_path).pisub("trust", ".", "--yes").code == 0
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "heron, because it swims\n"), done.stderr


@pytest.mark.parametrize(
    ("number", "printed"),
    [
        (0, "one two\ncomplete True\nTrue True\n"),
        (1, "completed ['build 7'] ['build 8']\n"),
    ],
)
def test_the_page_about_waiting_shows_programs_that_work(tmp_path: Path, number: int, printed: str) -> None:
    project = make_project(tmp_path / "project")
    program = blocks(ROOT / "docs/waiting.md", "python")[number]
    (project.root / "program.py").write_text(program.text)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=project.root, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, printed), done.stderr


def test_the_readme_s_terminal_session_goes_as_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text("print('hello')\n")
    (tmp_path / "part").mkdir()
    (tmp_path / "part/more.py").write_text("import hello\n")
    project = Project(tmp_path)
    shown = [words[1:] for words in commands(README) if words[0] == "pisub"]
    foreground, detached, ps, questions, answer, logs, result, stop = shown
    assert project.pisub(*foreground, "--answers", str(_answers(tmp_path))).code == 0
    run_id = project.pisub(*detached).out.strip()
    asked = eventually(lambda: project.pisub(*questions, "--json").json["questions"], what="the questions are open")
    assert run_id[:8] in project.pisub(*ps).out
    first, second = (each["id"] for each in asked)
    assert project.pisub(answer[0], first, *answer[2:]).code == 0
    assert project.pisub(answer[0], second, "for the tests").code == 0
    assert "complete" in project.pisub(*logs[:-1], run_id).err + project.pisub(*logs[:-1], run_id).out
    assert "report.md" in project.pisub(result[0], run_id).out
    assert project.pisub(stop[0], run_id).code == 0


def _answers(directory: Path) -> Path:
    path = directory / "answers.yaml"
    path.write_text("- whole repository\n- a test\n")
    return path
