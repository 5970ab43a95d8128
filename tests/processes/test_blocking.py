"""The blocking face: the same results, errors that pass, threads that end, and Ctrl-C that is not swallowed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import pisub
from pisub import blocking
from pisub.agents.trust import trust
from pisub.errors import ClientClosedError, RunFailedError, UnknownAgentError, WaitTimeoutError
from pisub.protocol.runs import RunState
from pisub.testing import ScriptedHuman
from tests.support.eventually import eventually
from tests.support.project import Project, make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "pisub-blocking"]


def test_a_script_hosts_delegates_and_reads_without_asyncio(project: Project) -> None:
    human = ScriptedHuman(["right", "because"])
    with blocking.host("s", human) as host:
        assert (host.is_host, host.session_id, threads()) == (True, "s", ["pisub-blocking"])
        run = host.spawn("ask", "x", project.root)
        assert run.text() == "ok: ('right', 'because')"
        assert [each.run_id for each in host.runs(include_finished=True)] == [run.id]
        assert host.run(run.id[:8]).result().state is RunState.COMPLETE
        kinds = [event.type for event in run.events()]
        assert (kinds[0], kinds.count("subagent.ask.opened")) == ("subagent.run.started", 1)
    assert threads() == []
    with pytest.raises(ClientClosedError):
        run.view()


def test_a_batch_a_question_of_the_host_s_own_and_the_supervisor(project: Project) -> None:
    (project.root / "deciding.py").write_text(
        "async def decide(child):\n    return (await child.contact_supervisor('need_decision', 'now?')).message\n"
    )
    front = "name: decide\ndescription: Decides.\nrunner:\n  type: python\n  target: deciding:decide\n"
    (project.root / ".pisub" / "agents" / "decide.md").write_text(f"---\n{front}---\n")
    trust(project.settings, project.root)
    heard: list[str] = []
    with blocking.host("s", ScriptedHuman(["yes"])) as host:
        tasks = [pisub.Task(agent="echo", task=word, cwd=project.root) for word in ("a", "b")]
        assert [run.text() for run in host.spawn_all(tasks, concurrency=1)] == ["a", "b"]
        assert host.ask("Really?").values == ("yes",)
        host.supervisor.on_request(lambda request: heard.append(request.message))
        run = host.spawn("decide", "x", project.root)
        eventually(lambda: heard, what="the handler is called")
        (request,) = host.supervisor.pending()
        host.supervisor.reply("go", reply_to=request.id)
        assert (run.text(), heard) == ("go", ["now?"])


def test_errors_are_those_of_the_asynchronous_calls(project: Project) -> None:
    with blocking.connect("s") as client:
        with pytest.raises(UnknownAgentError):
            client.spawn("nobody", "x", project.root)
        with pytest.raises(RunFailedError, match="the agent broke"):
            client.spawn("fail", "x", project.root).text()
        slow = client.spawn("sleep", "x", project.root)
        with pytest.raises(WaitTimeoutError):
            slow.result(timeout_s=0.01)
        assert slow.stop("enough").state is RunState.STOPPED
    assert threads() == []


def test_an_exception_in_the_block_passes_and_closes(project: Project) -> None:
    with pytest.raises(ZeroDivisionError), blocking.connect("s"):
        _ = 1 / 0
    assert threads() == []


def test_a_loop_left_in_the_middle_of_the_events_closes_cleanly(project: Project) -> None:
    with blocking.connect("s") as client:
        run = client.spawn("talk", "x", project.root)
        for event in run.events():
            assert event.type == "subagent.run.started"
            break
        run.result()


def test_ctrl_c_ends_a_waiting_script_at_once(project: Project) -> None:
    script = """
import pisub
from pisub import blocking
from pisub.agents.trust import trust
with blocking.connect("s") as client:
    run = client.spawn("sleep", "x", attached=True)
    try:
        print("waiting", flush=True)
        run.result()
    except KeyboardInterrupt:
        print("interrupted", run.stop().state, flush=True)
        raise
"""
    process = subprocess.Popen([sys.executable, "-c", script], cwd=project.root, stdout=-1, stderr=-1, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert out == "interrupted stopped\n"
    assert (process.returncode, err.strip().splitlines()[-1]) == (-signal.SIGINT, "KeyboardInterrupt")
