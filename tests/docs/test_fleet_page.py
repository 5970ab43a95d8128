"""The page about the fleet: its program is run, and its bounds are the code's."""

import subprocess
import sys
from pathlib import Path

from pisub.fleet import dto
from pisub.fleet.words import DEFAULT_LINES, MAX_LINES
from pisub.protocol.fleet import SnapshotCaps
from tests.support.documents import ROOT, blocks
from tests.support.project import make_project

PAGE = ROOT / "docs/fleet.md"


def test_the_program_prints_what_the_page_says(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    (program,) = blocks(PAGE, "python")
    (printed,) = blocks(PAGE, "text")
    (tmp_path / "program.py").write_text(program.text)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=project.root, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, printed.text), done.stderr


def test_the_bounds_are_those_of_the_code() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    caps = SnapshotCaps()
    names = f"`agent` and `role` have at most {dto.MAX_AGENT_UNITS} UTF-16 units, `model` and `effort` "
    nodes = f"{caps.max_children_per_node} children of a node, {caps.max_depth} levels below a run, "
    sizes = f"{caps.max_string_length} UTF-16 units a text, {caps.max_serialized_bytes // 1024} KiB"
    assert f"at most {dto.MAX_ENTRIES}, in the order" in text
    assert f"{names}{dto.MAX_MODEL_UNITS}, `goal` {dto.MAX_GOAL_UNITS}" in text
    assert f"At most {caps.max_runs} runs, {nodes}{sizes}" in text
    assert f"the last `lines` ({DEFAULT_LINES}, at most {MAX_LINES})" in text
