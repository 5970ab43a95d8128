"""Any tree of odd names and contents gives a report, the same each time, that is well-formed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from pisub.agents.surveyor import parts
from pisub.agents.surveyor.model import Wishes
from pisub.agents.surveyor.report import render_report
from tests.support.survey_trees import survey_of

ENDINGS = st.sampled_from([b"", b".py", b".js", b".ts", b".md", b".toml", b".min.js"])
PIECES = st.binary(min_size=1, max_size=12).map(lambda raw: raw.translate(None, b"/\0"))
NAMES = st.builds(lambda stem, ending: (stem or b"x") + ending, PIECES, ENDINGS).filter(
    lambda n: n not in {b".", b".."}
)
SPECIAL = st.sampled_from(
    [b"package.json", b"pyproject.toml", b"Makefile", b".gitignore", b"Dockerfile", b"__init__.py"]
)
PATHS = st.lists(NAMES | SPECIAL, min_size=1, max_size=3).map(b"/".join)
WORDS = st.sampled_from(
    [b"import a\n", b"# TODO x\n", b"from . import b\n", b"a: b\n", b"{", b"[", b"'", b"\xff", b"|"]
)
CONTENTS = st.lists(WORDS | st.binary(max_size=20), max_size=8).map(b"".join)


@settings(deadline=None)
@given(st.dictionaries(PATHS, CONTENTS, max_size=8), st.text(max_size=60))
def test_any_tree_gives_a_report(tree: dict[bytes, bytes], purpose: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for path, content in tree.items():
            place = Path(folder) / os.fsdecode(path)
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
            except (FileExistsError, NotADirectoryError, IsADirectoryError):
                continue  # one path is the directory of another
        survey = survey_of(Path(folder))
        assert survey == survey_of(Path(folder))
        labels = parts.choices(survey.files)
        assert len(labels) <= 64
        assert all(1 <= len(label) <= 500 and label.isprintable() for label in labels)
        for part in labels.values():
            report = render_report(survey, Wishes(part=part, purpose=purpose))
            assert report == render_report(survey, Wishes(part=part, purpose=purpose))
            report.encode("utf-8")
            assert all(line.isprintable() for line in report.split("\n"))
            check_tables(report)


def check_tables(report: str) -> None:
    """Every row of a table has as many cells as its head."""
    width = 0
    for line in report.split("\n"):
        if not line.startswith("|"):
            width = 0
            continue
        cells = line.replace("\\|", "").count("|")
        width = width or cells
        assert cells == width
