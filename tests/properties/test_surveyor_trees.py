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
SPECIAL = [b"package.json", b"pyproject.toml", b"Makefile", b".gitignore", b"Dockerfile", b"__init__.py"]
WORDS = [b"import a\n", b"# TODO x\n", b"from . import b\n", b"a: b\n", b"{", b"[", b"'", b"\xff", b"|"]


def make_name(stem: bytes, ending: bytes) -> bytes:
    name = stem.translate(None, b"/\0") + ending
    return b"x" + name if name in {b"", b".", b".."} else name


def join_path(names: list[bytes]) -> bytes:
    return b"/".join(names)


def join_text(words: list[bytes]) -> bytes:
    return b"".join(words)


NAMES = st.builds(make_name, st.binary(max_size=12), ENDINGS)
PATHS = st.lists(st.one_of(NAMES, st.sampled_from(SPECIAL)), min_size=1, max_size=3).map(join_path)
CONTENTS = st.lists(st.one_of(st.sampled_from(WORDS), st.binary(max_size=20)), max_size=8).map(join_text)


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
