"""A runner that the kernel kills because memory ran out: in a cgroup of the test's own, where one can be made."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pisub.agents.trust import trust
from pisub.launch import ensure_broker
from pisub.protocol.runs import RunState
from pisub.record.layout import Layout
from pisub.record.reader import read_run
from tests.support.eventually import eventually
from tests.support.project import make_project

_LIMIT_BYTES = 256 * 2**20
_HOG = """
async def hog(child):
    held = []
    while True:
        held.append(bytearray(2**22))
"""


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup with little memory and no swap."""
    group = _own_memory_group()
    if group is None:
        pytest.skip("no memory cgroup here")
    mine = group / f"pisub-test-{os.getpid()}"
    limit = "memory.max" if (group / "cgroup.controllers").exists() else "memory.limit_in_bytes"
    try:
        mine.mkdir()
        (mine / limit).write_text(str(_LIMIT_BYTES))
    except OSError as error:
        with contextlib.suppress(OSError):
            mine.rmdir()
        pytest.skip(f"no cgroup of one's own can be made here: {error.strerror}")
    try:
        yield mine
    finally:
        eventually(lambda: not (mine / "cgroup.procs").read_text().split(), what="the cgroup is empty")
        mine.rmdir()


def _own_memory_group() -> Path | None:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if "memory" in controllers.split(","):
            return Path("/sys/fs/cgroup/memory") / group.lstrip("/")
    unified = Path("/sys/fs/cgroup") / line.split(":", 2)[2].lstrip("/")
    return unified if (unified / "memory.events").exists() else None


def test_a_runner_that_the_kernel_killed_for_want_of_memory_is_recorded_so(
    cgroup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PISUB_NURSERY", "0")  # a parent of its own, in the cgroup
    project = make_project(tmp_path / "project", is_trusted=False)
    (project.root / "hog_agent.py").write_text(_HOG)
    front = "name: hog\ndescription: Takes all memory.\nrunner:\n  type: python\n  target: hog_agent:hog\n"
    (project.root / ".pisub" / "agents" / "hog.md").write_text(f"---\n{front}---\n")
    trust(project.settings, project.root)
    ensure_broker(project.settings)  # outside of the cgroup: it stays longer than the run
    started = subprocess.run(
        ["sh", "-c", f'echo $$ > {cgroup}/cgroup.procs; exec "$0" -m pisub run -d hog x', sys.executable],
        cwd=project.root,
        capture_output=True,
        text=True,
        check=True,
    )
    layout = Layout.of(project.settings)
    run_id = started.stdout.strip()
    result = eventually(lambda: read_run(layout, run_id).result, what="the run is over")
    assert (result.state, result.reason, result.signal) == (RunState.FAILED, "out-of-memory", "SIGKILL")
    assert "memory ran out" in str(result.error)
