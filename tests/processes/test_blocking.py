"""The blocking face: the same results, errors that pass, threads that end, and Ctrl-C that is not swallowed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pisub import blocking
from pisub.errors import ClientClosedError, RunFailedError, UnknownAgentError, WaitTimeoutError
from pisub.protocol.runs import RunState
from pisub.testing import ScriptedHuman
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
from pisub import blocking
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
