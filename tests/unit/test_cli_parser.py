import importlib.util
from pathlib import Path

import pytest

from pisub.asking import chosen_value
from pisub.cli.parser import COMMANDS, CommandLineError, build_parser
from pisub.cli.select import inbox_session
from pisub.errors import InvalidArgumentError
from pisub.protocol.checkpoint import Question


def test_every_command_has_its_module() -> None:
    assert [c.name for c in COMMANDS if importlib.util.find_spec(f"pisub.cli.commands.{c.module}") is None] == []


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["nonsense"],
        ["run"],
        ["run", "a", "b", "c"],
        ["run", "a", "b", "--timeout", "0"],
        ["run", "a", "b", "--timeout", "-1"],
        ["run", "a", "b", "--timeout", "nan"],
        ["run", "a", "b", "--timeout", "2147484"],
        ["run", "a", "b", "--ask", "maybe"],
        ["broker", "restart"],
        ["ps", "--al"],
    ],
)
def test_what_does_not_fit_is_an_error_and_never_leaves_the_process(argv: list[str]) -> None:
    with pytest.raises(CommandLineError):
        build_parser().parse_args(argv)


def test_a_task_may_be_a_dash_and_may_begin_with_one_behind_two() -> None:
    parser = build_parser()
    assert parser.parse_args(["run", "a", "-"]).task == "-"
    assert parser.parse_args(["run", "-d", "a", "--", "-x --json"]).task == "-x --json"


def test_an_option_is_meant_by_its_text_first_then_by_its_number_then_in_any_case() -> None:
    question = Question("Which?", options=["src", "2", "Docs"])
    assert [chosen_value(question, text) for text in ("src", "1", "2", "3", "docs")] == [
        "src",
        "src",
        "2",
        "Docs",
        "Docs",
    ]


@pytest.mark.parametrize("text", ["", "  \n", "0", "4", "nothing", "-1", "²"])
def test_what_is_no_option_is_no_answer(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        chosen_value(Question("Which?", options=["src", "tests"]), text)


def test_a_free_answer_is_kept_as_it_is() -> None:
    assert chosen_value(Question("Why?"), " because\n ") == " because\n "


def test_a_project_has_one_inbox_wherever_one_stands_in_it(tmp_path: Path) -> None:
    (tmp_path / "one" / ".git").mkdir(parents=True)
    (tmp_path / "one" / "deep" / "er").mkdir(parents=True)
    (tmp_path / "two").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "one")
    assert inbox_session(tmp_path / "one" / "deep" / "er") == inbox_session(tmp_path / "one") == inbox_session(link)
    assert inbox_session(tmp_path / "one") != inbox_session(tmp_path / "two")
