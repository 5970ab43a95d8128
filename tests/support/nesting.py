"""A project whose agents start runs of their own, and ways to look at what they started."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import msgspec

from pisub.agents.trust import trust
from pisub.record.layout import Layout
from pisub.record.reader import read_run
from pisub.record.tree import children, descendants
from tests.support.eventually import eventually, eventually_async
from tests.support.project import Project, make_project

#: An agent that does what its task says in JSON: ``start`` (agent and task of each run), ``do`` (what then). A nested
#: task may be JSON itself, so that trees of any depth are one task.
PARENT = '''
import asyncio
import json

import pisub


async def parent(child):
    plan = json.loads(child.task)
    async with pisub.connect() as client:
        runs = []
        try:
            for agent, task in plan["start"]:
                task = task if isinstance(task, str) else json.dumps(task)
                runs.append(await client.spawn(agent, task, attached=plan.get("attached", False)))
        except pisub.PisubError as error:
            return json.dumps({"code": error.code, "message": error.message})
        child.log("started")
        match plan.get("do", "wait"):
            case "leave":
                return "left"
            case "sleep":
                await asyncio.sleep(600)
            case "control":
                return json.dumps(await control(client, runs, plan, child))
        ends = [await run.result() for run in runs]
        return json.dumps([[str(each.state), each.reason, each.output] for each in ends])


async def control(client, runs, plan, child):
    """Try each command on each run that the plan names; the first is the own child, the own run is "self"."""
    said = {}
    for name, run_id in {**plan.get("others", {}), "self": child.run_id, "child": runs[0].id}.items():
        for verb in plan["verbs"]:
            run = client.run(run_id)
            try:
                match verb:
                    case "steer":
                        await run.view()
                        while not (await run.view()).started:
                            await asyncio.sleep(0.01)
                        said[f"{verb} {name}"] = (await run.steer("hello")).state
                    case "interrupt":
                        said[f"{verb} {name}"] = (await run.interrupt()).state
                    case "resume":
                        resumed = await run.resume("go on")
                        said[f"{verb} {name}"] = (await resumed.result()).state
                    case "stop":
                        said[f"{verb} {name}"] = (await run.stop()).state
            except pisub.PisubError as error:
                said[f"{verb} {name}"] = error.code
    return said


async def listen(child):
    """Take one message; a resumed run returns at once."""
    if child.resumed_from:
        return f"resumed with {child.resume_message}"
    message = await child.next_message()
    (child.cwd / "heard").write_text(message.text)
    await asyncio.sleep(600)
'''

Plan = dict[str, Any]


def make_family(root: Path) -> Project:
    """Make a trusted project with the agents of ``make_project`` and two more: ``parent`` and ``listen``."""
    project = make_project(root, is_trusted=False)
    (root / "family.py").write_text(PARENT)
    for name in ("parent", "listen"):
        front = f"""\
            ---
            name: {name}
            description: The test agent {name}.
            runner:
              type: python
              target: family:{name}
            ---
            """
        (root / ".pisub" / "agents" / f"{name}.md").write_text(textwrap.dedent(front))
    trust(project.settings, root)
    return project


def plan(*start: tuple[str, str | Plan], do: str = "wait", **more: Any) -> Plan:
    """Return what a ``parent`` is to do."""
    return {"start": start, "do": do, **more}


def as_task(wanted: Plan) -> str:
    """Return a plan as a task."""
    return msgspec.json.encode(wanted).decode()


def children_of(layout: Layout, run_id: str) -> list[str]:
    """Return the ids of the runs that a run started."""
    return [each.run_id for each in children(descendants(layout, run_id), run_id)]


def started_below(layout: Layout, run_id: str, count: int) -> list[str]:
    """Wait until so many runs below a run have begun; return their ids, oldest first."""

    def begun() -> list[str]:
        return [each.run_id for each in descendants(layout, run_id) if has_begun(layout, each.run_id)]

    eventually(lambda: len(begun()) == count, what=f"{count} runs below {run_id} have begun")
    return begun()


async def started_below_async(layout: Layout, run_id: str, count: int) -> list[str]:
    """Do the same in a loop."""

    def begun() -> list[str]:
        return [each.run_id for each in descendants(layout, run_id) if has_begun(layout, each.run_id)]

    await eventually_async(lambda: len(begun()) == count, what=f"{count} runs below {run_id} have begun")
    return begun()


def has_begun(layout: Layout, run_id: str) -> bool:
    """Tell whether a run's agent is at work."""
    return read_run(layout, run_id).status is not None


def end_of(layout: Layout, run_id: str) -> tuple[str, str | None] | None:
    """Return the state and the reason of a run that has ended; None of one that goes on."""
    result = read_run(layout, run_id).result
    return None if result is None else (result.state.value, result.reason)
