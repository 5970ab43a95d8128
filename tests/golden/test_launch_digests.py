"""The digests of a launch, kept: whoever compares them across versions must be told when what they cover changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pisub.agents.parsing import parse_agent
from pisub.agents.skills import Skill
from pisub.preflight.bindings import canonical
from pisub.preflight.plan import Surroundings, Wishes, plan_launch
from pisub.runs.ceilings import check_ceiling

PLAIN = "---\nname: a\ndescription: d\n---\nDo it.\n"
FULL = """\
---
name: a
package: acme
description: d
aliases: [b]
tools: read, write, ext:web, mcp:git/log
extensions: [web]
excludeTools: bash
skills: s
model: one
fallbackModels: two
thinking: high
output: out.md
timeoutMs: 1000
maxSubagentDepth: 1
toolBudget: {hard: 4}
---
Do it, with ä and 🙂.
"""
PROGRAM = "---\nname: a\ndescription: d\nrunner: {type: external-cli, argv: [cat, -u]}\n---\n"
SKILL = Skill(name="s", path="/skills/s/SKILL.md", source="project", description="How", sha256="5" * 64)
CEILING = check_ceiling({"allowedTools": ["read"], "denyExtensions": True}, "plan")


@pytest.mark.parametrize(
    ("text", "around", "wishes", "digests"),
    [
        (
            PLAIN,
            {},
            {},
            (
                "29a6d5a4edf605d289e610d41d130ffe8c81e51a2022e8976eed98057372e83a",
                "a4744b8a0fda473177303f75e6ee1750a690ec63a10fdb5c4f5876b1ba5a617c",
            ),
        ),
        (
            FULL,
            {"skills": (SKILL,)},
            {},
            (
                "8a501ec9d0c4ee3b8c51929a9dfd9dbe4506476805db86c5fb99939b0fb3b632",
                "1ffeebb019dd094fbcf671bb3021630ddcf582bd904ba6c4ba60c234962c6d41",
            ),
        ),
        (
            FULL,
            {"skills": (SKILL,), "ceiling": CEILING},
            {"output_schema": {"b": None, "a": [1]}},
            (
                "8a501ec9d0c4ee3b8c51929a9dfd9dbe4506476805db86c5fb99939b0fb3b632",
                "75b4c6521ebe448d0d5e196c26042c6c41df948e1c5f40a68cea39ec01628192",
            ),
        ),
        (
            PROGRAM,
            {},
            {"output": False},
            (
                "3e5cc5b7788927e2805ca0ede478895745b646452621d99f924478196d6c1afa",
                "b34e666d327c8f8aa25c7b8c18ee6cea32e99313005812d04026aeac0d70c9cb",
            ),
        ),
    ],
)
def test_a_launch_has_the_digests_of_their_first_day(
    text: str, around: dict[str, Any], wishes: dict[str, Any], digests: tuple[str, str]
) -> None:
    agent = parse_agent(text, file=Path("/agents/a.md"), file_sha256="0" * 64)
    plan = plan_launch(agent, "The task.", Wishes(**wishes), Surroundings(cwd="/work", **around))
    assert (plan.definition_digest, plan.launch_contract_digest) == digests


def test_canonical_json_has_one_form() -> None:
    value = {"é": 1, "z": [1, 2.5, None, True, "\n"], "a": {"b": "ä", "A": 0}}
    assert canonical(value).decode() == '{"a":{"A":0,"b":"ä"},"z":[1,2.5,null,true,"\\n"],"é":1}'
