"""What the keys of an agent's file mean, and how a wrong one is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from pisub.agents.definition import AgentDefinition, AgentSource, ToolBudget, snapshot
from pisub.agents.parsing import parse_agent
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
        model="fast",
        extra={"since": "2024-02-30", "nested": {"a": [1, 2.5, True, None]}},
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


@pytest.mark.parametrize(
    ("keys", "field", "expected"),
    [
        ("package: Acme Tools", "package", "acme-tools"),
        ("aliases: [x, y, x]\nalias: z", "aliases", ("x", "y", "z")),
        ("aliases: [a, b]", "aliases", ("b",)),
        ("advertise: false", "advertise", False),
        ("excludeTools: bash, write", "exclude_tools", ("bash", "write")),
        ("tools: read, mcp:x/y, ./t.py", "tools", ("read", "mcp:x/y", "/project/.pisub/agents/t.py")),
        ("extensions: [../x.py, web]", "extensions", ("/project/.pisub/x.py", "web")),
        ("excludeExtensions: web", "exclude_extensions", ("web",)),
        ("subagentOnlyExtensions: [web]", "subagent_only_extensions", ("web",)),
        ("allowNestedSubagents: false", "nesting_limit", 0),
        ("maxSubagentDepth: 0", "nesting_limit", 0),
        ("maxSubagentDepth: 3", "nesting_limit", 3),
        ("mutationTools: [patch]", "mutation_tools", ("patch",)),
        ("model: openai/gpt", "model", "openai/gpt"),
        ("model:", "model", None),
        ("fallbackModels: a, b", "fallback_models", ("a", "b")),
        ("fast: true", "fast", True),
        ("thinking: false", "thinking", "off"),
        ("thinking: xhigh", "thinking", "xhigh"),
        ("systemPromptMode: append", "prompt_mode", "append"),
        ("", "prompt_mode", "replace"),
        ("inheritProjectContext: true", "takes_project_context", True),
        ("inheritProjectContext: perhaps", "takes_project_context", False),
        ("inheritGlobalContext: false", "inherit_global_context", False),
        ("inheritSkills: true", "inherit_skills", True),
        ("skills: [pdf]\nskill: web", "skills", ("pdf", "web")),
        ("skills:", "skills", ()),
        ("skillPath: ./skills", "skill_path", ("/project/.pisub/agents/skills",)),
        ("output: report.md", "output", "report.md"),
        ("output: false", "output", ""),
        ("outputMode: file-only", "output_mode", "file-only"),
        ("defaultReads: a.md, b.md", "default_reads", ("a.md", "b.md")),
        ("defaultProgress: true", "default_progress", True),
        ("defaultContext: fork", "default_context", "fork"),
        ("async: true", "default_async", True),
        ("timeoutMs: 1", "timeout_ms", 1),
        ("toolTimeoutMs: 2147483647", "tool_timeout_ms", 2_147_483_647),
        ("acceptance: none", "acceptance", "none"),
        ("acceptance: {level: checked}", "acceptance", {"level": "checked"}),
        ("acceptanceRole: writer", "acceptance_role", "writer"),
        ("completionGuard: false", "completion_guard", False),
        ("completionGuard: maybe", "completion_guard", None),
        ("interactive: true", "interactive", True),
        ("permission: {edit: ask}", "permissions", {"edit": "ask"}),
        ("toolBudget: {hard: 4}", "tool_budget", ToolBudget(hard=4)),
        ("toolBudget: '{\"hard\": 4, \"soft\": 2, \"block\": [\" bash\", \"bash\"]}'",
         "tool_budget", ToolBudget(hard=4, soft=2, block=("bash",))),
        ("toolBudget: {hard: 1, block: '*'}", "tool_budget", ToolBudget(hard=1, block=("*",))),
        ("memory: {scope: project}", "memory", {"scope": "project"}),
        ("color: blue", "extra", {"color": "blue"}),
    ],
)  # fmt: skip
def test_each_key_has_its_type(keys: str, field: str, expected: object) -> None:
    assert getattr(parse(keys), field) == expected


def test_a_package_stands_before_the_name() -> None:
    agent = parse("package: Foo")
    assert (agent.name, agent.short_name, agent.package) == ("foo.a", "a", "foo")


def test_the_delegate_works_with_its_parents_prompt_and_context() -> None:
    agent = parse_agent("---\nname: delegate\ndescription: d\n---\n", file=FILE)
    assert (agent.prompt_mode, agent.takes_project_context) == ("append", True)


@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("package: '!!'", "package"),
        ("advertise: perhaps", "advertise"),
        ("async: 1", "async"),
        ("fast: [true]", "fast"),
        ("allowNestedSubagents: yes", "allowNestedSubagents"),
        ("thinking: much", "thinking"),
        ("systemPromptMode: prepend", "systemPromptMode"),
        ("outputMode: file", "outputMode"),
        ("defaultContext: new", "defaultContext"),
        ("acceptanceRole: reader", "acceptanceRole"),
        ("timeoutMs: 0", "timeoutMs"),
        ("timeoutMs: true", "timeoutMs"),
        ("timeoutMs: 2147483648", "timeoutMs"),
        ("toolTimeoutMs: 1.5", "toolTimeoutMs"),
        ("maxSubagentDepth: -1", "maxSubagentDepth"),
        ("toolBudget: 3", "toolBudget"),
        ("toolBudget: '{'", "toolBudget"),
        ("toolBudget: {hard: 0, block: '*'}", "toolBudget"),
        ("toolBudget: {hard: true}", "toolBudget"),
        ("toolBudget: {hard: 2, soft: 3}", "toolBudget"),
        ("toolBudget: {hard: 2, soft: 0}", "toolBudget"),
        ("toolBudget: {hard: 2, block: []}", "toolBudget"),
        ("toolBudget: {hard: 2, block: [1]}", "toolBudget"),
        ("toolBudget: {hard: 2, turns: 1}", "toolBudget"),
        ("permission: x\npermissions: y", "permissions"),
        ("model: {a: b}", "model"),
    ],
)
def test_a_value_of_another_type_is_named_with_its_line(key: str, field: str) -> None:
    with pytest.raises(InvalidAgentError) as caught:
        parse(key)
    assert (caught.value.field, caught.value.line) == (field, 4 + key.count("\n"))
    assert caught.value.message.startswith(f"{FILE}:{caught.value.line}: {field}: ")


def test_what_is_excluded_cannot_ask() -> None:
    granted = 'extensions: true\ntools: "*, ext:checkpoint-bridge"\n'
    assert parse(granted).can_ask
    assert not parse(granted + "excludeExtensions: Checkpoint-Bridge").can_ask
    assert not parse(granted + "excludeTools: ask_user_via_host").can_ask


def test_the_configuration_lies_over_the_file() -> None:
    text = f"{HEAD}skill: x\ntools: read, bash\n---\n"
    overrides = {"a": {"tools": ["read"], "skills": [], "model": "small", "timeoutMs": 5}, "b": {"tools": []}}
    agent = parse_agent(text, file=FILE, overrides=overrides)
    assert (agent.tools, agent.skills, agent.model, agent.timeout_ms) == (("read",), (), "small", 5)


@pytest.mark.parametrize(
    ("override", "field", "words"),
    [
        ({"timeoutMs": "soon"}, "timeoutMs", "expected a whole number"),
        ({"tolls": ["read"]}, "tolls", "is no key of an agent"),
        ({"name": "b"}, "name", "cannot be configured"),
        ({"runner": {"type": "x"}}, "runner.type", "is not a type of runner"),
    ],
)
def test_a_wrong_value_of_the_configuration_is_named_there(override: dict[str, object], field: str, words: str) -> None:
    with pytest.raises(InvalidAgentError, match=words) as caught:
        parse_agent(f"{HEAD}---\n", file=FILE, overrides={"a": override})
    assert (caught.value.file, caught.value.line, caught.value.field) == ("config.toml", None, field)


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
