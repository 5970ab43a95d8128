"""Any text as an agent's file gives an agent, or an error that names its place."""

from __future__ import annotations

from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pisub.agents.definition import AgentDefinition, parse_agent, snapshot
from pisub.errors import InvalidAgentError

FILE = Path("/somewhere/a.md")
KEYS = st.sampled_from(["name", "description", "tools", "extensions", "runner", "alias", "x", "type", "target", "argv"])
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


@given(st.integers(1, 30_000), st.sampled_from(["[", "{a: ", "- ", "? ", "!!seq [", "((", "&a "]))
def test_any_depth_gives_an_agent_or_a_placed_error(depth: int, opener: str) -> None:
    check(f"---\nname: a\ndescription: d\nx: {opener * depth}\n---\n")
