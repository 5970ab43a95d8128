"""A stop that nobody waits for, and a deadline that the runner cannot keep, are carried out all the same."""

from pathlib import Path

import pytest

from pisub.clock import SystemClock
from pisub.process import own_identity
from pisub.protocol.runs import RunState
from pisub.record.control import request_control
from pisub.record.layout import Layout
from pisub.record.model import ControlRequest
from pisub.record.results import read_result
from tests.support.eventually import eventually
from tests.support.project import make_project


@pytest.mark.parametrize("nursery", ["1", "0"], ids=["nursery", "exec"])
def test_an_agent_that_holds_the_interpreter_is_ended_by_its_parent(
    tmp_path: Path, nursery: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PISUB_NURSERY", nursery)
    project = make_project(tmp_path)
    run_id = project.launch("hold")
    paths = Layout.of(project.settings).run(run_id)
    eventually(lambda: "holding" in paths.events.read_text(), what="the agent holds the interpreter")
    # Asked for a minute ago by somebody who is gone, and no message follows.
    asked_at = SystemClock().wall_ms() - 60_000
    request_control(paths, ControlRequest(type="stop", requested_at=asked_at, by=own_identity(), source="test"))
    result = eventually(lambda: read_result(paths), what="the run is over")
    assert (result.state, result.reason) == (RunState.STOPPED, "stop")


def test_the_deadline_of_an_agent_that_holds_the_interpreter_is_kept_by_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PISUB_STOP_GRACE_MS", "1")
    project = make_project(tmp_path)
    run_id = project.launch("hold", "x", "--timeout", "1")
    paths = Layout.of(project.settings).run(run_id)
    # Its parent looks every five seconds, three times: what was left, that it is over, that it was not obeyed.
    result = eventually(lambda: read_result(paths), what="the run is over", within_s=100)
    assert (result.state, result.reason) == (RunState.FAILED, "timeout")
    assert "used up the 1 s" in str(result.error)
