"""What the keys of an agent's file mean, and how a wrong one is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from pisub.agents.definition import AgentDefinition, AgentSource, parse_agent, snapshot
from pisub.errors import InvalidAgentError
from pisub.runs.spec import AgentSnapshot, RunnerSpec

FILE = Path("/project/.pisub/agents/a.md")
HEAD = "---\nname: a\ndescription: d\n"


def parse(keys: str = "", *, source: AgentSource = AgentSource.USER, body: str = "") -> AgentDefinition:
    return parse_agent(f"{HEAD}{keys}\n---\n{body}", file=FILE, source=source, project_root=None)


def test_every_key_is_read_and_unknown_ones_are_kept() -> None:
    text = (
        "---\nname: review.er\ndescription: Looks at code\naliases: rev, critic\n"
        "tools: [read, 'ext:checkpoint-bridge']\n"
        "extensions:\n  - checkpoint-bridge\nmodel: fast\nsince: 2024-02-30\nnested: {a: [1, 2.5, true, null]}\n"
        'runner: {type: python, target: "pkg.mod:run"}\n---\n\nBe kind.\n'
    )
    assert parse_agent(text, file=FILE, source=AgentSource.PROJECT, project_root=Path("/project")) == AgentDefinition(
        name="review.er",
        description="Looks at code",
        source=AgentSource.PROJECT,
        file=FILE,
        project_root=Path("/project"),
        runner=RunnerSpec(type="python", target="pkg.mod:run", import_paths=("/project",)),
        system_prompt="Be kind.",
        aliases=("rev", "critic"),
        tools=("read", "ext:checkpoint-bridge"),
        extensions=("checkpoint-bridge",),
        extra={"model": "fast", "since": "2024-02-30", "nested": {"a": [1, 2.5, True, None]}},
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("tools: a, b", ("a", "b")),
        ("tools: [a, b]", ("a", "b")),
        ('tools: "[a, b]"', ("a", "b")),
        ("tools:\n  - a\n  - b", ("a", "b")),
        ("tools:", ()),
        ("tools: []", ()),
        ("tools: none", ()),
        ('tools: "*, ext:checkpoint-bridge"', ("*", "ext:checkpoint-bridge")),
        ("tools: *, ext:checkpoint-bridge", ("*", "ext:checkpoint-bridge")),
        ("tools: Bash(git add, git log), Read", ("Bash(git add, git log)", "Read")),
        ("other: 1", None),
    ],
)
def test_a_list_may_be_yaml_or_text(value: str, expected: tuple[str, ...] | None) -> None:
    assert parse(value).tools == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("extensions: true", ("*",)),
        ("extensions: false", ()),
        ("extensions: [checkpoint-bridge]", ("checkpoint-bridge",)),
        ('extensions: "[checkpoint-bridge]"', ("checkpoint-bridge",)),
        ("extensions: checkpoint-bridge", ("checkpoint-bridge",)),
        ("", None),
    ],
)
def test_extensions_also_take_yes_and_no(value: str, expected: tuple[str, ...] | None) -> None:
    assert parse(value).extensions == expected


PYTHON = 'runner: {type: python, target: "m:f"}\n'


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (PYTHON, True),
        ("runner: {type: external-cli, argv: [cat]}", True),
        (PYTHON + "tools: read", False),
        (PYTHON + "extensions: [checkpoint-bridge]", False),
        (PYTHON + 'extensions: [checkpoint-bridge]\ntools: "*"', False),
        (PYTHON + 'extensions: [Checkpoint-Bridge]\ntools: "*, ext:checkpoint-bridge"', True),
        (PYTHON + "extensions: true\ntools: [ext:checkpoint-bridge/ask_user_via_host]", True),
        (PYTHON + "extensions: true\ntools: [ext:checkpoint-bridge/other]", False),
        ("", False),
        ('extensions: [checkpoint-bridge]\ntools: "*, ext:checkpoint-bridge"', True),
    ],
)
def test_asking_needs_arming_and_granting_unless_a_runner_states_neither(keys: str, expected: bool) -> None:
    assert parse(keys).can_ask is expected


def test_a_word_that_yaml_would_convert_stays_text() -> None:
    agent = parse_agent("---\nname: no\ndescription: 1e3\n---\n", file=FILE)
    assert (agent.name, agent.description) == ("no", "1e3")


def test_a_value_with_a_colon_is_read_as_other_tools_read_it() -> None:
    text = "---\nname: a\ndescription: Use when: the user says <x>: go\n---\n"
    assert parse_agent(text, file=FILE).description == "Use when: the user says <x>: go"


def test_windows_line_ends_and_a_byte_order_mark_are_read() -> None:
    text = "\ufeff---\r\nname: a\r\ndescription: d\r\n---\r\nline 1\r\nline 2\r\n"
    assert parse_agent(text, file=FILE).system_prompt == "line 1\nline 2"


def test_the_body_is_never_taken_for_yaml() -> None:
    assert parse(body="tools: [broken\n---\nname: other").system_prompt == "tools: [broken\n---\nname: other"


def test_a_relative_file_target_is_beside_the_agent_file() -> None:
    runner = parse('runner: {type: python, target: "./mine.py:run"}').runner
    assert runner == RunnerSpec(
        type="python", target="/project/.pisub/agents/mine.py:run", import_paths=("/project/.pisub/agents",)
    )


def test_numbers_in_argv_are_the_text_of_the_file() -> None:
    runner = parse("runner:\n  type: external-cli\n  argv: [sleep, 010, yes]").runner
    assert runner == RunnerSpec(type="external-cli", argv=("sleep", "010", "yes"))


@pytest.mark.parametrize(
    ("text", "line", "field"),
    [
        ("no block", 1, None),
        ("---\nname: a\n", 1, None),
        ("---\n- a\n---\n", 2, None),
        ("---\nname: a\n---\n", 1, "description"),
        ("---\ndescription: a\n---\n", 1, "name"),
        ("---\nname: ../x\ndescription: d\n---\n", 2, "name"),
        ("---\nname: [a]\ndescription: d\n---\n", 2, "name"),
        ("---\nname: a\nname: b\ndescription: d\n---\n", 3, "name"),
        (HEAD + "description: again\n---\n", 4, "description"),
        (HEAD + "alias: a b\n---\n", 4, "alias"),
        (HEAD + "tools: {a: b}\n---\n", 4, "tools"),
        (HEAD + "x: [1\n---\n", 5, None),
        (HEAD + "x: !!python/object:os.system {}\n---\n", 4, "x"),
        (HEAD + "x: !!binary aGk=\n---\n", 4, "x"),
        (HEAD + "x: &a [1]\ny: *a\n---\n", 4, "y"),
        (HEAD + "runner: python\n---\n", 4, "runner"),
        (HEAD + "runner: {target: a}\n---\n", 4, "runner.type"),
        (HEAD + "runner:\n  type: pythn\n---\n", 5, "runner.type"),
        (HEAD + "runner:\n  type: python\n---\n", 5, "runner.target"),
        (HEAD + "runner:\n  type: python\n  target: nothing\n---\n", 6, "runner.target"),
        (HEAD + "runner:\n  type: python\n  target: m:f\n  argv: [a]\n---\n", 7, "runner.argv"),
        (HEAD + "runner:\n  type: external-cli\n  argv: ls -l\n---\n", 6, "runner.argv"),
        (HEAD + "runner:\n  type: external-cli\n  argv: []\n---\n", 6, "runner.argv"),
        (HEAD + 'runner:\n  type: external-cli\n  argv: [a, "b\\0"]\n---\n', 6, "runner.argv"),
    ],
)
def test_an_error_names_file_line_and_field(text: str, line: int, field: str | None) -> None:
    with pytest.raises(InvalidAgentError) as caught:
        parse_agent(text, file=FILE)
    error = caught.value
    assert (error.file, error.line, error.field) == (str(FILE), line, field)
    assert error.message.startswith(f"{FILE}:{line}: ")


def test_a_snapshot_keeps_what_a_run_needs() -> None:
    agent = parse(PYTHON, body="Prompt")
    assert snapshot(agent) == AgentSnapshot(
        name="a",
        description="d",
        source="user",
        file=str(FILE),
        runner=RunnerSpec(type="python", target="m:f", import_paths=(str(FILE.parent),)),
        system_prompt="Prompt",
        can_ask=True,
    )


def test_an_agent_without_a_runner_cannot_be_run_and_the_error_says_which_types_there_are() -> None:
    with pytest.raises(InvalidAgentError, match="python or external-cli"):
        snapshot(parse())
