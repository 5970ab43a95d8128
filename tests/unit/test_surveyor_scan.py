"""What the surveyor sees of a tree, and what it leaves alone."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from pisub.agents.surveyor import scan
from pisub.agents.surveyor.ignore import is_ignored, parse_ignore
from pisub.agents.surveyor.languages import language_of
from pisub.agents.surveyor.model import Listing, SurveyedFile
from tests.support.survey_trees import SHOP, listing_of, make_tree, survey_of


def test_a_walk_leaves_out_what_is_ignored_or_made_by_tools(tmp_path: Path) -> None:
    listing = listing_of(make_tree(tmp_path, SHOP))
    left_out = {"noise.log", "build/out.py", "node_modules/left/index.js"}
    assert listing == Listing(
        how="a walk of the directory",
        paths=tuple(sorted(SHOP.keys() - left_out)),
        skipped=(("node_modules", 1),),
    )


def test_a_walk_is_capped_and_says_so(tmp_path: Path) -> None:
    listing = listing_of(make_tree(tmp_path, {f"{n:03}": "" for n in range(20)}), max_files=5)
    assert (listing.is_capped, listing.paths) == (True, ("000", "001", "002", "003", "004"))


def test_a_missing_directory_is_a_problem_and_no_error(tmp_path: Path) -> None:
    assert listing_of(tmp_path / "gone").problems == (("", "no such file or directory"),)


def test_only_regular_files_are_read_and_nothing_blocks(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a.py").write_text("x = 1")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(os.path.relpath(tmp_path / "socket"))
    assert listing_of(tmp_path).paths == ("a.py",)
    # As git lists them, or when one took a file's place after the walk.
    read = list(scan.read_files(tmp_path, ["link", "loop", "pipe", "socket", "gone", "gone/too", "a.py"]))
    assert read == ["gone", "gone/too", SurveyedFile("a.py", 5, "Python", lines=1)]


def test_big_binary_and_unreadable_files_are_counted_but_not_read(tmp_path: Path) -> None:
    with (tmp_path / "big.py").open("wb") as file:
        file.truncate(scan.MAX_FILE_BYTES + 1)
    (tmp_path / "image.png").write_bytes(b"\x89PNG\0\0")
    (tmp_path / "latin.py").write_bytes(b"# \xe9\nx = 1\n")
    survey = survey_of(tmp_path)
    assert [(file.path, file.lines, file.why_unread) for file in survey.files] == [
        ("big.py", None, "too big to read"),
        ("image.png", None, "binary"),
        ("latin.py", 2, ""),
    ]


def test_the_bytes_of_a_survey_are_bounded(tmp_path: Path) -> None:
    make_tree(tmp_path, {"a": "x" * 60, "b": "x" * 60, "c": "x" * 30})
    read = [
        each for each in scan.read_files(tmp_path, ["a", "b", "c"], max_total_bytes=100) if not isinstance(each, str)
    ]
    assert [(each.path, each.why_unread) for each in read] == [
        ("a", ""),
        ("b", "beyond the survey's limit of bytes"),
        ("c", ""),
    ]


def test_what_git_lists_is_sorted_made_unique_and_capped() -> None:
    listing = scan.listing_from_git(b"b\0a\0\xff\0a\0node_modules/x.js\0", max_files=2)
    assert listing == Listing(how="git", paths=("a", "b"), skipped=(("node_modules", 1),), is_capped=True)


@pytest.mark.parametrize(
    ("rules", "path", "is_directory", "expected"),
    [
        ("*.log", "a/b.log", False, True),
        ("*.log", "a/b.logs", False, False),
        ("/build", "build", True, True),
        ("/build", "a/build", True, False),
        ("build/", "build", False, False),
        ("build/", "a/build", True, True),
        ("a/*.c", "a/x.c", False, True),
        ("a/*.c", "a/b/x.c", False, False),
        ("a/**/x", "a/b/c/x", False, True),
        ("**/x", "x", False, True),
        ("*.log\n!keep.log", "keep.log", False, False),
        ("[ab].c", "b.c", False, True),
        ("[!ab].c", "b.c", False, False),
        ("# x\n\\#y", "#y", False, True),
        ("[", "[", False, True),
        ("*a*a*a*a*a*a*b", "a" * 200, False, False),
    ],
)
def test_gitignore_is_respected_roughly(rules: str, path: str, is_directory: bool, expected: bool) -> None:
    assert is_ignored(path, parse_ignore(rules, ""), is_directory=is_directory) is expected


@pytest.mark.parametrize(
    ("path", "first_line", "language"),
    [
        ("a/b.PY", "", "Python"),
        ("Makefile", "", "Make"),
        ("Dockerfile.dev", "", "Dockerfile"),
        ("run", "#!/usr/bin/env -S python3.11 -E", "Python"),
        ("run", "#!/bin/sh", "Shell"),
        ("run", "#!", "other"),
        (".py", "", "other"),
        ("x.unknown", "", "other"),
    ],
)
def test_a_language_is_known_by_name_or_interpreter(path: str, first_line: str, language: str) -> None:
    assert language_of(path, first_line) == language
