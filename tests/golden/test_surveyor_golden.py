"""The whole report for a small tree, byte for byte."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pisub.agents.surveyor.model import Commit, GitFacts, Wishes
from pisub.agents.surveyor.report import render_report
from tests.support.survey_trees import SHOP, make_tree, survey_of

GOLDEN = Path(__file__).with_name("surveyor_report.md")
GIT = GitFacts((Commit("0a1b2c3", "2024-05-06", "Ann | Bob", "Sell <things>"),), (("src/shop/app.py", 3),), 500)


def test_the_report_of_the_shop_is_the_golden_one(tmp_path: Path) -> None:
    survey = msgspec.structs.replace(survey_of(make_tree(tmp_path, SHOP), name="shop"), git=GIT)
    report = render_report(survey, Wishes(part="src/", purpose="Onboarding of Ann"))
    assert report == GOLDEN.read_text(encoding="utf-8")
