import argparse
import re
from pathlib import Path

import pytest

from pisub.cli.exits import markdown_table
from pisub.cli.parser import COMMANDS, Command

DOCUMENT = (Path(__file__).parents[2] / "docs/cli.md").read_text(encoding="utf-8")


def test_the_exit_codes_are_those_of_the_code() -> None:
    found = re.search(r"<!-- exit codes -->\n(.*?)\n<!-- end -->", DOCUMENT, re.DOTALL)
    assert found is not None
    assert found[1] == markdown_table()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_and_each_of_its_options_is_described(command: Command) -> None:
    sections = re.findall(r"^### (.*?)\n(.*?)(?=^##|\Z)", DOCUMENT, re.MULTILINE | re.DOTALL)
    section = "".join(head + body for head, body in sections if re.search(rf"`pisub {command.name}\b", head))
    assert section, f"docs/cli.md has no section for {command.name}"
    parser = argparse.ArgumentParser(add_help=False)
    command.declare(parser)
    options = [option for action in parser._actions for option in action.option_strings if option != "--json"]
    assert [option for option in options if f"`{option}" not in section] == []
