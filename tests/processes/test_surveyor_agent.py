"""The surveyor as an agent: with git and without, answered and not."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from pisub.agents.surveyor.agent import PART_QUESTION, PURPOSE_QUESTION, survey
from pisub.protocol.checkpoint import AskStatus
from tests.support.survey_trees import SHOP, RecordingChild, make_tree

AUTHOR = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "commit.gpgsign=false")


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(root), *AUTHOR, *arguments], check=True, capture_output=True)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "shop", SHOP)


@pytest.fixture
def repository(shop: Path) -> Path:
    git(shop, "init", "-q")
    git(shop, "add", ".")
    git(shop, "commit", "-qm", "Open the | shop")
    return shop


def test_one_batch_is_asked_and_the_report_follows_the_answers(repository: Path, tmp_path: Path) -> None:
    child = RecordingChild(repository, tmp_path / "out", ["web/", "a review"])
    summary = asyncio.run(survey(child))
    report = (tmp_path / "out" / "report.md").read_text()
    assert [each.text for each in child.asked] == [PART_QUESTION, PURPOSE_QUESTION]
    assert child.asked[0].options[0] == "whole repository"
    assert child.tools == ["git ls-files", "git log", "read files", "write report"]
    assert summary.endswith(f"The report is {tmp_path / 'out' / 'report.md'}")
    assert "## Closer: `web/`" in report
    assert "Open the \\| shop" in report
    assert "noise.log" not in report


def test_without_a_repository_the_directory_is_walked(shop: Path, tmp_path: Path) -> None:
    child = RecordingChild(shop, tmp_path / "out", ["whole repository", "x"])
    asyncio.run(survey(child))
    report = (tmp_path / "out" / "report.md").read_text()
    assert child.tools == ["git ls-files", "walk", "read files", "write report"]
    assert "Listed by a walk of the directory." in report


@pytest.mark.parametrize("status", [each for each in AskStatus if each is not AskStatus.OK])
def test_an_ask_that_fails_still_gives_a_report_that_says_so(shop: Path, tmp_path: Path, status: AskStatus) -> None:
    asyncio.run(survey(RecordingChild(shop, tmp_path / "out", [], status)))
    report = (tmp_path / "out" / "report.md").read_text()
    assert "Not answered: which part to look at closer and what the report is for (nobody is there)." in report


def test_an_answer_that_came_before_the_ask_ended_is_used(shop: Path, tmp_path: Path) -> None:
    asyncio.run(survey(RecordingChild(shop, tmp_path / "out", ["web/", None], AskStatus.TIMEOUT)))
    report = (tmp_path / "out" / "report.md").read_text()
    assert "## Closer: `web/`" in report
    assert "Not answered: what the report is for (nobody is there)." in report


def test_an_empty_and_a_missing_directory_have_reports(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "missing"):
        child = RecordingChild(tmp_path / name, tmp_path / "out", ["x"])
        asyncio.run(survey(child))
        assert [each.text for each in child.asked] == [PURPOSE_QUESTION]
        assert "No files were found." in (tmp_path / "out" / "report.md").read_text()


def test_programs_that_a_repository_names_are_not_started(repository: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    trap.chmod(0o700)
    for key in ("core.fsmonitor", "gpg.program", "core.pager", "core.sshCommand"):
        git(repository, "config", key, str(trap))
    git(repository, "config", "log.showSignature", "true")
    asyncio.run(survey(RecordingChild(repository, tmp_path / "out", ["whole repository", "x"])))
    assert not (tmp_path / "sprung").exists()
