"""Structured results of real runs: of Python agents and programs, in the record, by commands, after a resume."""

from __future__ import annotations

import asyncio
import json
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest

import pisub
from pisub.agents.trust import trust
from pisub.cli.exits import Exit
from pisub.errors import InvalidArgumentError
from pisub.protocol.runs import RunState
from tests.support.project import Project, make_project

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}

AGENTS = '''
import json
import os
import subprocess
import sys

import pisub


async def give(child):
    """Give what the task says, each until one fits."""
    for value in json.loads(child.task):
        try:
            child.structured_output(value)
        except pisub.StructuredOutputError as error:
            child.log(error.problems[0])
        else:
            return "given"
    return "nothing fitted"




async def again(child):
    assert child.output_schema["required"] == ["n"]
    if child.resume_message:
        child.structured_output({"n": 7})
        return "done"
    raise RuntimeError("not yet")
'''

#: Tries twice by the command, then says what the command said.
PROGRAM = """
import subprocess, sys
def give(value):
    done = subprocess.run([sys.executable, "-m", "pisub", "structured-output"], input=value, text=True,
                          capture_output=True)
    print(done.returncode, done.stderr.strip().splitlines()[2:])
give('{"n": "one"}')
give('{"n": 1}')
give('{"n": 2}')
"""
NESTED = """
import subprocess, sys
done = subprocess.run([sys.executable, "-m", "pisub", "run", "plain", "x"], capture_output=True, text=True)
print(done.returncode, done.stdout.strip(), done.stderr[-500:])
subprocess.run([sys.executable, "-m", "pisub", "structured-output", '{"n": 1}'], check=True)
"""
PLAIN = """
import os, subprocess, sys
done = subprocess.run([sys.executable, "-m", "pisub", "structured-output", '{"n": 2}'], capture_output=True, text=True)
print(done.returncode, [name for name in os.environ if name in ("PISUB_STRUCTURED_OUTPUT", "PISUB_OUTPUT_SCHEMA")])
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = make_project(tmp_path / "project")
    (made.root / "structured.py").write_text(AGENTS)
    runners = {name: {"type": "python", "target": f"structured:{name}"} for name in ("give", "again")}
    for name, script in (("program", PROGRAM), ("nested", NESTED), ("plain", PLAIN)):
        (made.root / f"{name}.py").write_text(script)
        runners[name] = {"type": "external-cli", "argv": [sys.executable, str(made.root / f"{name}.py")]}  # type: ignore[dict-item]
    for name, runner in runners.items():
        front = f"---\nname: {name}\ndescription: d\nrunner: {json.dumps(runner)}\n---\n"
        (made.root / f".pisub/agents/{name}.md").write_text(textwrap.dedent(front))
    (made.root / "schema.json").write_text(json.dumps(SCHEMA))
    trust(made.settings, made.root)
    return made


def test_a_value_that_fits_is_in_result_and_spec_beside_the_text(project: Project) -> None:
    async def main() -> None:
        async with pisub.connect("s") as client:
            run = await client.spawn("give", '[{"n": "one"}, {"n": 1}]', project.root, output_schema=SCHEMA)
            result = await run.result()
            assert (result.state, result.structured, result.output) == (RunState.COMPLETE, {"n": 1}, "given")
            assert (await run.view()).spec.output_schema == SCHEMA
            events = [event async for event in run.events()]
            assert "$.n: 'one' is not of type 'integer'" in [each.data.get("text") for each in events]
            shown = await client.preflight("give", '[{"n": "one"}, {"n": 1}]', project.root, output_schema=SCHEMA)
            other = await client.preflight("give", '[{"n": "one"}, {"n": 1}]', project.root)
            assert shown.ok
            assert other.ok
            assert shown.contract.launch_contract_digest == result.launch_contract_digest
            assert other.contract.launch_contract_digest != result.launch_contract_digest

    asyncio.run(main())


def test_a_run_that_gives_nothing_that_fits_has_failed_and_has_no_value(project: Project) -> None:
    async def main() -> None:
        async with pisub.connect("s") as client:
            run = await client.spawn("give", '[{"n": "one"}]', project.root, output_schema=SCHEMA)
            result = await run.result()
            assert (result.state, result.reason) == (RunState.FAILED, "structured_output_failed")
            assert result.structured is msgspec.UNSET
            text = await client.spawn("echo", '{"n": 1}', project.root)
            assert ((await text.result()).output, (await text.result()).structured) == ('{"n": 1}', msgspec.UNSET)

    asyncio.run(main())


def test_a_schema_that_cannot_be_used_launches_nothing(project: Project) -> None:
    async def main() -> None:
        async with pisub.connect("s") as client:
            with pytest.raises(InvalidArgumentError, match="invalid outputSchema"):
                await client.spawn("give", "[]", project.root, output_schema={"$ref": "https://example.org"})
            with pytest.raises(InvalidArgumentError, match="output_schema"):
                await client.spawn("give", "[]", project.root, output_schema="{}")
            assert await client.runs(include_finished=True) == []

    asyncio.run(main())


def test_a_resumed_run_owes_the_same_value(project: Project) -> None:
    async def main() -> None:
        async with pisub.connect("s") as client:
            run = await client.spawn("again", "x", project.root, output_schema=SCHEMA)
            assert (await run.result()).state is RunState.FAILED
            resumed = await run.resume("now")
            assert (await resumed.result()).structured == {"n": 7}

    asyncio.run(main())


def test_a_program_gives_its_value_by_the_command_which_says_what_does_not_fit(project: Project) -> None:
    outcome = project.pisub("run", "program", "x", "--schema", "schema.json", "--json")
    assert outcome.code == Exit.OK, outcome.err
    assert outcome.json["structured"] == {"n": 1}
    assert outcome.json["output"] == "2 [\"$.n: 'one' is not of type 'integer'\"]\n0 []\n10 []\n"
    assert project.pisub("result", outcome.json["runId"]).out == '{"n":1}\n'


def test_what_a_program_starts_cannot_give_its_value(project: Project) -> None:
    outcome = project.pisub("run", "nested", "x", "--schema", "schema.json", "--json")
    assert outcome.json["structured"] == {"n": 1}
    assert outcome.json["output"].startswith("0 10 []")


def test_outside_of_a_run_with_a_schema_the_command_refuses(project: Project) -> None:
    outcome = project.pisub("structured-output", '{"n": 1}')
    assert outcome.code == Exit.REFUSED
    assert "no program of a run with a schema" in outcome.err


def test_a_schema_file_that_is_none_is_named(project: Project) -> None:
    for name, content in (("missing.json", None), ("broken.json", "{"), ("list.json", "[]")):
        if content is not None:
            (project.root / name).write_text(content)
        outcome = project.pisub("run", "give", "[]", "--schema", name)
        assert outcome.code == Exit.USAGE
        assert "schema" in outcome.err.lower()
