"""The page about external runs: its program is run."""

import subprocess
import sys
from pathlib import Path

from tests.support.documents import ROOT, blocks

PAGE = ROOT / "docs/external-runs.md"


def test_the_program_prints_what_the_page_says(tmp_path: Path) -> None:
    (program,) = blocks(PAGE, "python")
    (printed,) = blocks(PAGE, "text")
    done = subprocess.run(
        [sys.executable, "-c", program.text], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, printed.text), done.stderr
