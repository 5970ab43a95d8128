"""The page about launches: its program is run, its table is the code's order."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.documents import ROOT, blocks

PAGE = ROOT / "docs/launches.md"


def test_the_page_about_launches_shows_a_program_that_works(tmp_path: Path) -> None:
    (program,) = blocks(PAGE, "python")
    (tmp_path / "program.py").write_text(program.text)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    audit = "1 tools removed, 1 extension entries removed (capability ceiling: plan mode)"
    assert (done.returncode, done.stdout) == (0, f"restricted_agent\nFalse {audit}\nTrue\n"), done.stderr


def test_the_table_of_checks_has_the_codes_in_the_order_that_is_tested() -> None:
    from tests.unit.test_preflight import FAULTS  # noqa: PLC0415  # that test shows the order

    listed = re.findall(r"^\| \d+ \| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == [code for code, _ in FAULTS]
