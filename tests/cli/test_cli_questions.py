"""Questions of detached runs, answered from another terminal."""

import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pisub.cli.exits import Exit
from tests.support.eventually import eventually
from tests.support.project import Project, make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


def open_questions(project: Project, count: int) -> list[dict[str, Any]]:
    def read() -> list[dict[str, Any]]:
        found = project.pisub("questions", "--json").json["questions"]
        return found if len(found) == count else []

    return eventually(read, what=f"{count} questions are open")


def test_a_detached_run_s_questions_wait_for_whoever_answers_first(project: Project) -> None:
    run_id = project.launch("ask", "x", "--label", "mine")
    which, why = open_questions(project, 2)
    assert {**which, "id": "", "askId": "", "askedAt": 0, "sessionId": ""} == {
        "id": "",
        "askId": "",
        "number": 1,
        "count": 2,
        "runId": run_id,
        "sessionId": "",
        "agent": "ask",
        "label": "mine",
        "why": "to choose",
        "text": "Which?",
        "options": ["left", "right"],
        "placeholder": "",
        "askedAt": 0,
    }
    shown = project.pisub("questions").out
    assert f"{which['id']}  ask (mine), run {run_id}" in shown
    assert "1) left" in shown
    assert "waits for an answer" in project.pisub("ps").out

    assert project.pisub("answer", which["id"], "middle").code == Exit.USAGE
    assert project.pisub("answer", which["id"], "2").out == "answered: right\n"
    late = project.pisub("answer", which["id"], "left")
    assert (late.code, late.out) == (Exit.REFUSED, "")
    assert late.err == f"pisub: error: Question {which['askId']}.1 was answered by cli already.\n"
    assert project.pisub("answer", why["id"], "-", stdin="because\n").code == 0
    assert project.pisub("wait", run_id).code == 0
    assert project.pisub("result", run_id).out == "ok: ('right', 'because')\n"
    assert project.pisub("questions").err == "no open questions\n"


def test_a_declined_question_ends_its_batch_and_the_child_goes_on(project: Project) -> None:
    run_id = project.launch("ask")
    which, _ = open_questions(project, 2)
    declined = project.pisub("decline", which["id"], "--reason", "not now", "--json").json
    assert (declined["kind"], declined["outcome"], declined["runId"]) == ("outcome", "declined", run_id)
    assert project.pisub("wait", run_id).code == 0
    assert project.pisub("result", run_id).out == "timeout-or-cancelled: (None, None)\n"


def test_without_anybody_to_ask_a_question_ends_as_no_host_at_once(project: Project) -> None:
    assert project.pisub("run", "ask", "x").out == "no-host: (None, None)\n"
    run_id = project.launch("ask", "x", "--ask", "fail")
    project.pisub("wait", run_id)
    assert project.pisub("result", run_id).out == "no-host: (None, None)\n"


def test_the_questions_of_a_stopped_run_are_open_no_more(project: Project) -> None:
    run_id = project.launch("ask")
    which, _ = open_questions(project, 2)
    assert project.pisub("stop", run_id).code == 0
    assert open_questions_now(project) == []
    assert project.pisub("answer", which["id"], "left").code in {Exit.REFUSED, Exit.NOT_FOUND}


def open_questions_now(project: Project) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = project.pisub("questions", "--json").json["questions"]
    return found


def test_a_child_may_look_and_may_not_stop_answer_host_or_trust(project: Project) -> None:
    asking = project.launch("ask")
    which, _ = open_questions(project, 2)
    for arguments in (
        "stop {run_id}",
        f"stop {asking}",
        f"answer {which['id']} left",
        f"decline {which['id']}",
        "host --answers /dev/null",
        "trust . --yes",
    ):
        outcome = project.pisub("run", "command", arguments)
        assert outcome.code == 0, outcome.err
        assert outcome.out.startswith(f"{int(Exit.REFUSED)} pisub: error: A child of run "), (arguments, outcome.out)
    assert project.pisub("run", "command", "ps").out.startswith("0 ")
    assert len(open_questions(project, 2)) == 2
    assert project.pisub("stop", asking).code == 0


def test_a_watch_shows_each_question_once_and_what_became_of_it(project: Project) -> None:
    watching = project.start("questions", "--watch", "--json")
    assert watching.stdout is not None

    def line() -> dict[str, Any]:
        assert watching.stdout is not None
        return msgspec.json.decode(watching.stdout.readline())

    try:
        run_id = project.launch("ask")
        first = line()
        assert (first["kind"], first["runId"], first["number"], first["count"]) == ("question", run_id, 1, 2)
        second = line()
        assert (second["kind"], second["number"]) == ("question", 2)
        assert project.pisub("answer", first["id"], "1").code == 0
        closed = line()
        assert {**closed, "by": ""} == {
            "schemaVersion": 1,
            "kind": "question-closed",
            "askId": first["askId"],
            "number": 1,
            "runId": run_id,
            "outcome": "answered",
            "by": "",
            "reason": "",
        }
        project.pisub("decline", second["id"], "--reason", "no time")
        declined = line()
        assert (declined["outcome"], declined["reason"]) == ("declined", "no time")
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == Exit.INTERRUPTED
    finally:
        watching.kill()
        watching.communicate()


def test_a_watch_ends_when_nobody_reads_it_and_is_not_asked_for_the_closed_ones(project: Project) -> None:
    both = project.pisub("questions", "--watch", "--all")
    assert (both.code, "--all" in both.err) == (Exit.USAGE, True)
    with project.start("questions", "-w") as watching:
        assert watching.stdout is not None
        watching.stdout.close()
        run_id = project.launch("ask")
        assert watching.wait(60) == Exit.BROKEN_PIPE
    project.pisub("stop", run_id)
