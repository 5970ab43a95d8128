"""A command whose terminal is closed under it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pisub.cli.exits import Exit
from pisub.protocol.runs import RunState
from pisub.record.layout import Layout
from pisub.record.reader import list_runs, read_run
from tests.support.eventually import eventually
from tests.support.project import Project, make_project


def running(project: Project) -> str | None:
    return next((view.run_id for view in list_runs(Layout.of(project.settings)) if view.status is not None), None)


def test_a_closed_terminal_stops_the_foreground_run_and_the_code_says_so(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    master, terminal = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "pisub", "run", "sleep", "x"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=project.root,
        start_new_session=True,
    ) as process:
        os.close(terminal)
        run_id = eventually(lambda: running(project), what="the run has begun")
        assert run_id is not None
        os.close(master)
        process.send_signal(signal.SIGHUP)  # what the kernel sends to the session of a closed terminal
        assert process.wait(60) == Exit.HANG_UP
    assert read_run(Layout.of(project.settings), run_id).state is RunState.STOPPED


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGHUP, Exit.HANG_UP), (signal.SIGTERM, Exit.STOPPED), (signal.SIGINT, Exit.STOPPED)],
)
def test_a_signal_stops_the_foreground_run_whose_outcome_is_still_printed(
    tmp_path: Path, number: signal.Signals, code: Exit
) -> None:
    project = make_project(tmp_path)
    with project.start("run", "sleep", "x", "--json") as process:
        run_id = eventually(lambda: running(project), what="the run has begun")
        assert run_id is not None
        process.send_signal(number)
        printed, _ = process.communicate(timeout=60)
    assert (process.returncode, json.loads(printed)["state"]) == (code, "stopped")
    assert read_run(Layout.of(project.settings), run_id).state is RunState.STOPPED
