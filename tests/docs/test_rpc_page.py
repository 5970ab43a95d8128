"""The program on the page about RPC prints what the page says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.documents import ROOT, blocks
from tests.support.eventually import eventually
from tests.support.project import make_project

PAGE = ROOT / "docs/rpc.md"


def test_its_program_prints_what_it_says(tmp_path: Path) -> None:
    (program,) = blocks(PAGE, "python")
    (printed,) = blocks(PAGE, "text")
    project = make_project(tmp_path / "project")
    (project.root / "program.py").write_text(program.text)
    (project.root / "answers.yaml").write_text("- ok\n")
    run_it = [sys.executable, "program.py"]
    with project.start("host", "--session", "builds", "--answers", "answers.yaml") as host:
        try:
            eventually(lambda: project.pisub("rpc", "ping", "--session", "builds").code == 0, what="the host is there")
            done = subprocess.run(run_it, cwd=project.root, capture_output=True, text=True, timeout=60, check=False)
        finally:
            host.terminate()
            host.communicate()
    assert (done.stdout, done.stderr) == (printed.text, "")
