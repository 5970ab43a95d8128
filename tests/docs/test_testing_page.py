"""The page about testing shows a test file: it passes as it is printed."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import ROOT, blocks


@pytest.mark.parametrize(("number", "passed"), [(0, "2 passed"), (1, "1 passed")])
def test_the_tests_on_the_page_pass_as_they_are_printed(tmp_path: Path, number: int, passed: str) -> None:
    program = blocks(ROOT / "docs/testing.md", "python")[number]
    path = tmp_path / "test_deploy.py"
    path.write_text(program.text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", str(path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert passed in done.stdout, done.stdout + done.stderr
