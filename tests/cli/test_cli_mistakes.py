"""A user's mistake is one line with a way out and a named exit code. Never a traceback."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pisub.cli.exits import Exit
from tests.support.project import Project, make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("frobnicate",), Exit.USAGE),
        (("run", "nobody", "x"), Exit.NOT_FOUND),
        (("run", "echo", "x", "--cwd", "/does/not/exist"), Exit.USAGE),
        (("run", "echo", "x", "-d", "--answers", "f"), Exit.USAGE),
        (("run", "echo", "x", "--answers", "/does/not/exist"), Exit.USAGE),
        (("run", "echo", "x", "--session", " spaces "), Exit.USAGE),
        (("show", "0000000000"), Exit.NOT_FOUND),
        (("show", "../../etc/passwd"), Exit.USAGE),
        (("show", ""), Exit.USAGE),
        (("logs", "x" * 5_000), Exit.USAGE),
        (("result", "01kb\n"), Exit.USAGE),
        (("answer", "0000000000.1", "yes"), Exit.NOT_FOUND),
        (("answer", "../x", "yes"), Exit.USAGE),
        (("host",), Exit.USAGE),
        (("trust", "/does/not/exist"), Exit.USAGE),
        (("demo", "/does/not/exist"), Exit.USAGE),
        (("broker", "status"), Exit.NOT_FOUND),
    ],
)
def test_a_mistake_has_a_code_and_a_line(project: Project, arguments: tuple[str, ...], code: Exit) -> None:
    outcome = project.pisub(*arguments)
    assert outcome.code == code, outcome.err
    assert "Traceback" not in outcome.err
    if arguments[0] != "broker":
        assert outcome.err.startswith("pisub: error: ")
        assert outcome.out == ""


def test_an_error_is_json_where_json_is_wanted(project: Project) -> None:
    outcome = project.pisub("show", "0000000000", "--json")
    assert outcome.code == Exit.NOT_FOUND
    assert {**outcome.json, "message": ""} == {
        "schemaVersion": 1,
        "kind": "error",
        "code": "unknown_run",
        "message": "",
        "field": None,
    }


def test_a_wrong_setting_is_named_with_its_variable(project: Project) -> None:
    outcome = project.pisub("ps", environ={"PISUB_TIMEOUT_MS": "soon"})
    assert outcome.code == Exit.USAGE
    assert "PISUB_TIMEOUT_MS" in outcome.err


def test_the_doctor_names_a_variable_that_is_no_setting(project: Project) -> None:
    checks = project.pisub("doctor", "--json", environ={"PISUB_FSINC": "0"}).json["checks"]
    (found,) = (each for each in checks if each["name"] == "configuration")
    assert found["outcome"] == "warning"
    assert "PISUB_FSINC" in found["detail"]


def test_an_option_that_a_command_has_not_leads_to_the_help_of_the_command(project: Project) -> None:
    outcome = project.pisub("run", "--frob", "echo", "x")
    assert outcome.code == Exit.USAGE
    assert outcome.err == "pisub: error: unrecognized arguments: --frob\nhint: `pisub run --help` shows how\n"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("- match: Which\n  answer: up\n", "The script says 'up'; the options are left, right."),
        ("- {matc: Which}", "An item has the keys answer, match, option, delayMs, dismiss, absent."),
        (None, "answers.yaml cannot be read: No such file or directory."),
    ],
)
def test_a_script_of_answers_that_does_not_fit_is_a_sentence(
    project: Project, tmp_path: Path, script: str | None, said: str
) -> None:
    answers = tmp_path / "answers.yaml"
    if script is not None:
        answers.write_text(script)
    outcome = project.pisub("run", "ask", "x", "--answers", str(answers))
    assert said in outcome.err
    assert "Traceback" not in outcome.err


def test_a_corrupt_file_is_named_and_hides_no_other_run(project: Project, private_places: Path) -> None:
    good, bad = project.launch("echo"), project.launch("echo")
    project.pisub("wait", good, bad)
    spec = private_places / "home" / "runs" / bad / "spec.json"
    spec.write_text("{")
    listed = project.pisub("ps", "-a")
    assert good[:8] in listed.out
    assert str(spec) in listed.err
    shown = project.pisub("show", bad)
    assert shown.code == Exit.RECORD
    assert str(spec) in shown.err


def test_a_reader_that_goes_away_ends_the_command_quietly(project: Project) -> None:
    run_id = project.launch("talk")
    project.pisub("wait", run_id)
    command = f"{sys.executable} -m pisub logs {run_id} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=project.root)
    assert done.stderr == ""
    assert done.stdout.strip() in {"0", str(int(Exit.BROKEN_PIPE))}


def test_help_lists_the_exit_codes_by_name(project: Project) -> None:
    outcome = project.pisub("--help")
    assert outcome.code == 0
    listed = dict(re.findall(r"^ +(\d+)  ([a-z-]+) ", outcome.out, re.MULTILINE))
    assert {int(number) for number in listed} == set(Exit)


def test_a_command_without_standard_output_or_error_still_has_its_exit_code(project: Project) -> None:
    for closed, arguments, code in ((">&-", "ps", 0), ("2>&-", "show 0000000000", Exit.NOT_FOUND)):
        command = f"{sys.executable} -m pisub {arguments} {closed}"
        done = subprocess.run(["bash", "-c", command], check=False, cwd=project.root, stderr=subprocess.DEVNULL)
        assert done.returncode == code


def test_of_many_agents_the_error_for_an_unknown_one_names_a_few(project: Project) -> None:
    error = project.pisub("run", "zzzzzzzz", "x").err
    listed = error.partition("There are: ")[2].partition(".")[0]
    assert listed.count(",") == 7
    assert " more" in listed
    assert "`pisub agents`" in error
