"""What the machine refuses is said in one line, and is no bug of ours."""

import subprocess
import sys
from pathlib import Path

import pytest

from pisub.cli.exits import Exit
from pisub.protocol.limits import MAX_TASK_BYTES
from pisub.record.layout import Layout
from pisub.record.reader import read_run
from tests.support.eventually import eventually
from tests.support.project import Project, make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


def shell(project: Project, command: str) -> tuple[int, str]:
    """Run a command in bash, with ``pisub`` as a word of it; return its exit code and standard error."""
    script = f'pisub() {{ "{sys.executable}" -m pisub "$@"; }}; {command}'
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=False, cwd=project.root, stdin=subprocess.DEVNULL
    )
    return done.returncode, done.stderr


def test_a_full_disk_behind_the_output_is_no_bug(project: Project) -> None:
    code, said = shell(project, "pisub agents >/dev/full")
    assert (code, said.splitlines()[0]) == (Exit.RECORD, "pisub: error: No space left on device.")


def test_a_full_disk_behind_the_progress_costs_the_progress(project: Project) -> None:
    assert shell(project, "pisub run echo hello 2>/dev/full") == (Exit.OK, "")


def test_a_directory_that_is_gone_under_the_user_is_said(project: Project) -> None:
    code, said = shell(project, "mkdir gone; cd gone; rmdir ../gone; pisub run surveyor x")
    assert (code, said.splitlines()[0]) == (Exit.RECORD, "pisub: error: The current directory does not exist any more.")


@pytest.mark.parametrize("how", ["run echo --task-file /dev/zero", "run echo - </dev/zero"])
def test_a_task_without_an_end_is_read_to_its_limit(project: Project, how: str) -> None:
    code, said = shell(project, f"pisub {how}")
    assert code == Exit.USAGE
    assert f"more than {MAX_TASK_BYTES} bytes" in said


def test_names_that_are_no_utf_8_are_refused_or_shown(project: Project) -> None:
    code, said = shell(project, r"mkdir $'\xff'; pisub run surveyor x --cwd $'\xff'")
    assert code == Exit.USAGE
    assert "not UTF-8" in said
    code, said = shell(project, r"pisub run echo x --json --answers $'\xff'")
    assert code == Exit.USAGE
    assert "Traceback" not in said


def test_an_interrupt_while_the_program_is_still_starting_shows_no_traceback(project: Project) -> None:
    # The first import of the command's own code is where a short command spends its time: interrupted exactly there.
    hook = """
import sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "pisub.cli.console":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
from pisub.cli.main import main
sys.exit(main(["ps"]))
"""
    done = subprocess.run([sys.executable, "-c", hook], capture_output=True, text=True, check=False, cwd=project.root)
    assert (done.returncode, done.stdout, done.stderr) == (Exit.INTERRUPTED, "", "")


def test_a_damaged_question_is_reported_where_questions_are_listed(project: Project, private_places: Path) -> None:
    run_id = project.launch("ask")
    asks = private_places / "home" / "runs" / run_id / "asks"
    eventually(lambda: "ask" in project.pisub("questions").out, what="the child asks")
    batch = next(asks.glob("*/ask.json"))
    batch.write_text("[]\n}\n")
    listed = project.pisub("questions")
    assert (listed.code, listed.out) == (Exit.OK, "")
    assert str(batch) in listed.err
    project.pisub("stop", run_id)


def test_a_run_can_be_stopped_where_no_file_can_be_written(project: Project) -> None:
    run_id = project.launch("sleep")
    code, said = shell(project, f"ulimit -f 0; pisub stop {run_id}")
    assert code == Exit.OK
    assert "the request cannot be written (File too large): its process (pid " in said
    result = read_run(Layout.of(project.settings), run_id).result
    assert result is not None
    assert (result.state, result.reason) == ("stopped", "signal")


def test_an_answer_that_cannot_be_written_is_not_given_and_says_so(project: Project) -> None:
    run_id = project.launch("ask")
    open_ones = eventually(lambda: project.pisub("questions", "--json").json["questions"], what="it asks")
    number = open_ones[0]["id"]
    code, said = shell(project, f"ulimit -f 0; pisub answer {number} left")
    assert code == Exit.RECORD
    assert f"question {number} cannot be written (File too large): it is still open" in said
    assert project.pisub("answer", number, "left").code == Exit.OK
    assert project.pisub("stop", run_id).code == Exit.OK
