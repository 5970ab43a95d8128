"""A budget of what models use, over a run and what it starts: the next call, and the next run, are refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import pisub
from pisub.agents.trust import trust
from pisub.errors import InvalidArgumentError
from pisub.protocol.runs import RunState
from tests.support.project import make_project

AGENTS = '''
import pisub


async def spend(child):
    child.report_usage(input=int(child.task))
    return "spent"


async def alone(child):
    child.report_usage(input=10)
    with child.tool("read"):
        return "never"


async def family(child):
    """Start children that spend, until one is refused; say what each was allowed."""
    said = []
    async with pisub.connect(child.session_id) as client:
        for _ in range(3):
            try:
                run = await client.spawn("spend", "6", child.cwd)
            except pisub.PisubError as error:
                said.append(error.code)
                continue
            result = await run.result()
            said.append([result.state, (await run.view()).spec.usage_budget.tokens.hard])
    import json
    return json.dumps(said)
'''


def test_what_a_run_and_its_children_report_counts_and_the_next_is_refused(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    (project.root / "spending.py").write_text(AGENTS)
    for name in ("spend", "alone", "family"):
        runner = json.dumps({"type": "python", "target": f"spending:{name}"})
        (project.root / f".pisub/agents/{name}.md").write_text(
            f"---\nname: {name}\ndescription: d\nrunner: {runner}\n---\n"
        )
    trust(project.settings, project.root)

    async def main() -> None:
        async with pisub.connect("s") as client:
            budget = {"tokens": {"hard": 10}}
            alone = await (await client.spawn("alone", "x", project.root, usage_budget=budget)).result()
            assert (alone.state, alone.reason) == (RunState.FAILED, "usage_budget_exhausted")
            state = alone.usage_budget_state
            assert state is not None
            assert (state.outcome, state.reason) == ("hard-exceeded", "tokens")
            family = await client.spawn("family", "x", project.root, usage_budget=budget)
            assert json.loads(await family.text()) == [["complete", 10], ["complete", 4], "usage_budget_exhausted"]
            with pytest.raises(InvalidArgumentError, match="usage_budget: tokens"):
                await client.spawn("alone", "x", project.root, usage_budget={"tokens": 1})

    asyncio.run(main())
