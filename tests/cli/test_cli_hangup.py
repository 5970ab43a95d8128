"""A command whose terminal is closed under it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from pisub.cli.exits import Exit
from pisub.protocol.runs import RunState
from pisub.record.layout import Layout
from pisub.record.reader import list_runs, read_run
from tests.support.eventually import eventually
from tests.support.project import Project, make_project


def running(project: Project) -> str | None:
    return next((view.run_id for view in list_runs(Layout.of(project.settings)) if view.status is not None), None)


def test_a_closed_terminal_stops_the_foreground_run_and_the_code_says_that_nobody_reads(tmp_path: Path) -> None:
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
        assert process.wait(60) == Exit.BROKEN_PIPE
    assert read_run(Layout.of(project.settings), run_id).state is RunState.STOPPED
