"""How the report is ordered, what it says of answers that are missing, and that nothing breaks its Markdown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pisub.agents.surveyor import markdown, parts
from pisub.agents.surveyor.model import Listing, Survey, SurveyedFile, Wishes
from pisub.agents.surveyor.report import render_report, section_order
from tests.support.survey_trees import SHOP, make_tree, survey_of


def heads(report: str) -> list[str]:
    return re.findall(r"^## (.*)$", report, re.MULTILINE)


@pytest.mark.parametrize(
    ("purpose", "kind", "first"),
    [
        (None, "", "languages"),
        ("because", "", "languages"),
        ("Onboarding of new people", "onboarding", "papers"),
        ("To show a new contributor around.", "onboarding", "papers"),
        ("code review", "review", "notes"),
        ("a SECURITY review", "security", "entry_points"),
        ("plan the tests", "testing", "tests"),
        ("the next release", "release", "papers"),
    ],
)
def test_the_purpose_orders_the_sections_and_drops_none(purpose: str | None, kind: str, first: str) -> None:
    found, order = section_order(purpose)
    assert (found, order[0], sorted(order)) == (kind, first, sorted(section_order(None)[1]))


def test_what_was_asked_for_comes_first(tmp_path: Path) -> None:
    report = render_report(survey_of(make_tree(tmp_path, SHOP)), Wishes(part="src/shop/", purpose="a review"))
    assert heads(report)[:2] == ["Closer: `src/shop/`", "Left to do"]
    assert "> a review" in report
    assert "Imported from outside this part by `tests/test_app.py`." in report
    assert "Not answered" not in report


def test_a_missing_answer_is_said_and_never_invented(tmp_path: Path) -> None:
    survey = survey_of(make_tree(tmp_path, SHOP))
    report = render_report(survey, Wishes(why_unanswered="no-host"))
    assert "Not answered: which part to look at closer and what the report is for (no-host)." in report
    assert not any(head.startswith("Closer") for head in heads(report))
    partly = render_report(survey, Wishes(part="web/", why_unanswered="timeout"))
    assert "Not answered: what the report is for (timeout)." in partly


def test_a_big_part_is_outlined_by_what_is_public_a_little_of_each_file_and_no_tests(tmp_path: Path) -> None:
    many = "".join(f"def _private{n}():\n    pass\n\ndef plain{n}():\n    pass\n\n" for n in range(20))
    documented = "".join(f'def told{n}():\n    """Tell {n}."""\n\n' for n in range(2))
    tree = {
        "src/big.py": many + documented,
        "src/small.py": 'class One:\n    """One thing."""\n    def method(self):\n        pass\n',
        "tests/test_big.py": "".join(f"def test_{n}():\n    pass\n\n" for n in range(40)),
    }
    report = render_report(survey_of(make_tree(tmp_path, tree)), Wishes(part=""))
    assert heads(report)[0] == "Closer: the whole repository"
    names = re.findall(r"^\| `[^`]+:\d+` \| \w+ \| `(\w+)` \|", report, re.MULTILINE)
    assert names == ["plain0", "plain1", "told0", "told1", "One"]
    assert "of each at most 4:" in report
    assert "And 79 more definitions." in report


def test_a_big_part_of_nothing_but_tests_is_outlined_by_them(tmp_path: Path) -> None:
    tree = {"tests/test_big.py": "".join(f"def test_{n}():\n    pass\n\n" for n in range(90))}
    report = render_report(survey_of(make_tree(tmp_path, tree)), Wishes(part="tests/"))
    assert "`test_0`" in report
    assert "And 86 more definitions." in report


def test_an_empty_directory_has_a_report() -> None:
    survey = Survey(name="", listing=Listing(how="a walk of the directory", paths=()), files=())
    report = render_report(survey, Wishes(part="", purpose=None))
    assert report.startswith("# Survey of the directory\n\nNo files were found.")
    assert report.endswith("## Not covered\n\nEverything was read.\n")


def test_a_capped_tree_and_gone_files_are_said() -> None:
    survey = Survey(
        name="t",
        listing=Listing(how="git", paths=("a",), is_capped=True, problems=(("b", "permission denied"),)),
        files=(SurveyedFile("a", 3, "other", lines=1),),
        vanished=("c",),
    )
    report = render_report(survey, Wishes())
    assert "**The tree is bigger than one survey: it covers 1 of its files.**" in report
    assert "- `b`: permission denied." in report
    assert "- Gone before they could be read: `c`." in report


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a|b", "`a\\x7cb`"),
        ("a`b", "`a\\x60b`"),
        ("a\nb", "`a\\nb`"),
        ("\x1b[31m", "`\\x1b[31m`"),
        ("\udcff", "`\\xff`"),
        ("a\u202eb", "`a\\u202eb`"),
        ("\\xff", "`\\\\xff`"),
        (" ", "`\\x20`"),
        ("", "(empty)"),
    ],
)
def test_odd_names_are_shown_and_break_nothing(name: str, shown: str) -> None:
    assert markdown.code(name) == shown


def test_plain_text_is_never_markup() -> None:
    assert markdown.plain("<b>[x](y)|`*_\n#") == "\\<b\\>\\[x\\](y)\\|\\`\\*\\_\\\\n\\#"


@pytest.mark.parametrize(("count", "shown"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1 << 41, "2.0 TiB")])
def test_sizes_are_for_people(count: int, shown: str) -> None:
    assert markdown.size(count) == shown


def test_the_parts_are_directories_and_those_inside_a_dominant_one() -> None:
    files = tuple(
        SurveyedFile(path, 1, "Python", lines=lines)
        for path, lines in [("src/a/x.py", 50), ("src/b/y.py", 40), ("docs/z.md", 5), ("top.py", 1)]
    )
    assert parts.choices(files) == {
        "whole repository": "",
        "src/": "src/",
        "docs/": "docs/",
        "src/a/": "src/a/",
        "src/b/": "src/b/",
        "files at the top": "./",
    }


def test_a_flat_directory_has_nothing_to_choose() -> None:
    assert parts.choices((SurveyedFile("a.py", 1, "Python", lines=1),)) == {"whole repository": ""}
