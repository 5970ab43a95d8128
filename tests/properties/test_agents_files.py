"""Any text as an agent's file gives an agent, or an error that names its place."""

from __future__ import annotations

from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pisub.agents.definition import AgentDefinition, snapshot
from pisub.agents.parsing import KNOWN_KEYS, parse_agent
from pisub.errors import InvalidAgentError

FILE = Path("/somewhere/a.md")
KEYS = st.sampled_from(sorted({*KNOWN_KEYS, "x", "type", "target", "argv", "hard", "soft", "block"}))
VALUES = st.sampled_from(
    ["true", "false", "none", "", "1", "-1", "2147483648", "1.5", "fork", "off", "writer", "a, b", "[a, b]",
     "{hard: 1}", "'{\"hard\": 1}'", "./x", "mcp:a/b", "ext:a/b", "*", "'[a'", "file-only", "append"]
)  # fmt: skip
PIECES = st.sampled_from(
    ["---\n", "\n", ": ", "- ", "[", "]", "{", "}", "&a ", "*a", "!!int ", "? ", "|\n", "'", '"', "#", "  ", "\t", ", ",
     "python", "external-cli", "m:f", "no", "1", "0x", ".inf", "2024-13-01", "\r\n", "<<: ", "%TAG", "...\n", "1:90"]
)  # fmt: skip
TEXTS = st.lists(KEYS | PIECES | st.text(max_size=8), max_size=30).map("".join)


def outcome(text: str) -> AgentDefinition | InvalidAgentError:
    try:
        return parse_agent(text, file=FILE)
    except InvalidAgentError as error:
        return error


def check(text: str) -> None:
    match outcome(text):
        case AgentDefinition() as agent:
            msgspec.json.encode(agent.extra)
            if agent.runner is not None:
                msgspec.json.encode(snapshot(agent))
        case InvalidAgentError() as error:
            assert error.line is not None
            assert error.message.startswith(f"{FILE}:{error.line}: ")
            error.message.encode()


@given(TEXTS | st.text())
def test_any_text_gives_an_agent_or_a_placed_error(text: str) -> None:
    check(text)


@given(TEXTS)
def test_any_block_gives_an_agent_or_a_placed_error(block: str) -> None:
    check(f"---\nname: a\ndescription: d\n{block}\n---\nbody")


@given(st.dictionaries(KEYS, VALUES, max_size=8))
def test_any_value_of_a_known_key_gives_an_agent_or_an_error_at_that_key(entries: dict[str, str]) -> None:
    keys = {"name": "a", "description": "d", **entries}
    text = "---\n" + "".join(f"{key}: {value}\n" for key, value in keys.items()) + "---\n"
    check(text)
    found = outcome(text)
    if isinstance(found, InvalidAgentError) and found.field is not None:
        key = found.field.partition(".")[0]
        assert found.line == 1 or text.splitlines()[(found.line or 0) - 1].startswith(f"{key}:")


@given(st.integers(1, 30_000), st.sampled_from(["[", "{a: ", "- ", "? ", "!!seq [", "((", "&a "]))
def test_any_depth_gives_an_agent_or_a_placed_error(depth: int, opener: str) -> None:
    check(f"---\nname: a\ndescription: d\nx: {opener * depth}\n---\n")
