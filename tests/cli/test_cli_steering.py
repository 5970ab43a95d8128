"""``steer``, ``interrupt`` and ``resume``, as a user types them."""

import os
import signal
from pathlib import Path

import pytest

from pisub.record.journal_reader import JournalReader
from pisub.record.layout import Layout
from tests.support.eventually import eventually
from tests.support.project import Project
from tests.support.steered_project import make_steered_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_steered_project(tmp_path / "project")


def wait_until_it_says(project: Project, run_id: str, text: str) -> None:
    path = Layout.of(project.settings).run(run_id).events

    def has_said() -> bool:
        return path.exists() and any(event.data.get("text") == text for event in JournalReader(path).read_new())

    eventually(has_said, what=f"run {run_id} says {text}")


def test_a_run_is_steered_interrupted_and_gone_on_with(project: Project) -> None:
    run_id = project.launch("listen")
    wait_until_it_says(project, run_id, "listening")
    told = project.pisub("steer", run_id, "-", stdin="look left\n")
    assert (told.code, told.out) == (0, "delivered\n")
    steered = project.pisub("steer", run_id, "and right", "--mode", "auto", "--json").json
    assert (steered["kind"], steered["state"], steered["deliveryStatus"], steered["runId"]) == (
        "steered",
        "delivered",
        "delivered",
        run_id,
    )
    paused = project.pisub("interrupt", run_id)
    assert (paused.code, paused.out) == (0, f"{run_id} paused\n")
    assert f"pisub resume {run_id}" in paused.err
    resumed = project.pisub("resume", "-d", run_id, "go on", "--json").json
    assert (resumed["kind"], resumed["resumedFrom"]) == ("launched", run_id)
    wait_until_it_says(project, resumed["runId"], "listening")
    again = project.pisub("resume", run_id, "me too")
    assert (again.code, resumed["runId"] in again.err) == (10, True)
    project.pisub("steer", resumed["runId"], "end")
    assert project.pisub("wait", resumed["runId"]).code == 0
    assert project.pisub("result", resumed["runId"]).out == "look left | and right | resumed: go on\n"
    shown = dict(
        line.split(None, 2)[1:]
        for line in project.pisub("show", resumed["runId"]).out.splitlines()
        if line.startswith("resumed from")
    )
    assert shown == {"from": run_id}
    late = project.pisub("steer", run_id, "too late")
    assert (late.code, "takes no messages" in late.err) == (10, True)


def test_a_question_without_an_answer_is_shown_and_answered_with_the_resume(project: Project) -> None:
    run_id = project.launch("choose", "x", "--ask", "fail")
    assert project.pisub("wait", run_id).code == 0
    shown = project.pisub("show", run_id).out
    assert "unanswered 1" in shown
    assert "Which?" in shown
    listed = project.pisub("questions", "--all", "--json").json["unanswered"]
    assert [(each["number"], each["runId"], each["text"]) for each in listed] == [
        (1, run_id, "Which?"),
        (2, run_id, "Why?"),
    ]
    assert "unanswered" not in project.pisub("questions", "--json").json
    assert f"pisub resume {run_id} MESSAGE --answer 1=VALUE" in project.pisub("questions", "-a").err
    wrong = project.pisub("resume", run_id, "here", "--answer", "Which?=up")
    assert (wrong.code, "is no option" in wrong.err) == (2, True)
    assert project.pisub("resume", run_id, "here", "--answer", "nothing").code == 2
    new = project.pisub("resume", "-d", run_id, "here", "--answer", "1=2", "--answer", "Why?=so = so").out.strip()
    assert project.pisub("wait", new).code == 0
    assert project.pisub("result", new).out == "ok: ('right', 'so = so')\n"
    assert project.pisub("questions", "-a", "--json").json["unanswered"] == []


def test_a_resume_in_the_foreground_asks_here_prints_the_result_and_follows_it_with_its_code(project: Project) -> None:
    run_id = project.launch("choose", "x", "--ask", "fail", "--session", "s")
    assert project.pisub("wait", run_id).code == 0
    (project.root / "answers.yaml").write_text("- right\n- because\n")
    outcome = project.pisub("resume", run_id, "once more", "--answers", "answers.yaml")
    assert (outcome.code, outcome.out) == (0, "ok: ('right', 'because')\n")
    assert "(session s)" in outcome.err
    assert project.pisub("resume", "-d", run_id, "x", "--answers", "answers.yaml").code == 2
    elsewhere = project.pisub("resume", run_id, "x", environ={"PISUB_SESSION": "another"})
    assert (elsewhere.code, elsewhere.out) == (6, "")
    stopped = project.launch("deaf")
    wait_until_it_says(project, stopped, "working")
    project.pisub("stop", stopped)
    assert project.pisub("resume", stopped, "x").code == 10


def test_a_suspended_run_is_shown_as_stalled_and_an_unread_message_is_pending(project: Project) -> None:
    run_id = project.launch("deaf")
    wait_until_it_says(project, run_id, "working")
    assert (
        project.pisub("steer", run_id, "later", "--mode", "follow_up").out
        == "queued: the agent gets it after this turn\n"
    )
    assert project.pisub("steer", run_id, "hello").out == "pending: the agent has not looked for messages yet\n"
    pid = project.pisub("ps", "--json").json["runs"][0]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        listed = project.pisub("ps").out
    finally:
        os.kill(pid, signal.SIGCONT)
    assert "stalled" in listed
    stopped = project.pisub("stop", run_id, "--json").json
    assert stopped["state"] == "stopped"
    assert (project.pisub("resume", run_id, "again").code, project.pisub("interrupt", run_id).code) == (10, 10)


def test_a_child_may_not_steer_interrupt_or_resume(project: Project) -> None:
    from tests.support.project import make_project  # noqa: PLC0415  # the agent that runs commands is that project's

    commands = make_project(project.root.parent / "commands")
    victim = project.launch("deaf")
    for words in (f"steer {victim} x", f"interrupt {victim}", f"resume {victim} x"):
        outcome = commands.pisub("run", "command", words)
        assert outcome.out.startswith("10 "), outcome
    project.pisub("stop", victim)
