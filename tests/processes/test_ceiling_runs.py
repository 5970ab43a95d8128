"""Ceilings over real runs: at the launch, in the runner, below it, after a resume; and a child that wants more."""

from __future__ import annotations

import asyncio
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import pytest

import pisub
from pisub.agents.trust import trust
from pisub.errors import RecordCorruptError, RefusedError
from pisub.ids import new_id
from pisub.protocol.runs import RunState
from pisub.record.journal_reader import JournalReader
from pisub.record.layout import Layout
from pisub.record.reader import read_run
from pisub.runs.ceilings import CapabilityCeiling, check_ceiling, intersect
from pisub.testing import ScriptedHuman
from tests.support.nesting import as_task, children_of, make_family, plan
from tests.support.project import Project
from tests.support.runner_runs import execute, python_runner, submit

#: Tries each way to get more than it was given, and reports what became of each.
GREEDY = """
import asyncio
import json
import os
import subprocess
import sys

import pisub
from pisub.child import Child
from pisub.client.launching import put_ceiling
from pisub.record.layout import Layout

WIDE = {"allowedTools": ["bash", "read", "subagent", "ask_user_via_host"], "allowedAgents": ["ask", "echo", "greedy"]}


async def attempt(said, name, work):
    try:
        said[name] = await work
    except pisub.PisubError as error:
        said[name] = error.code


async def greedy(child):
    said = {}
    os.environ.pop("PISUB_RUN_ID")
    async with pisub.connect() as client:
        async def spawn(agent, session=None, **options):
            run = await client.spawn(agent, "x", **options)
            result = await run.result()
            return [result.state, result.output]

        async def register():
            client.register_ceiling("mine", WIDE)
            return "registered"

        await attempt(said, "register", register())
        await attempt(said, "forbidden agent", spawn("fail"))
        await attempt(said, "forbidden agent by a wider ceiling", spawn("fail", ceiling={"allowedAgents": ["fail"]}))
        await attempt(said, "allowed agent", spawn("echo", ceiling=WIDE))
        await attempt(said, "asking agent", spawn("ask", ceiling=WIDE))
        await attempt(said, "resume", resumed(client))
    async with pisub.connect("another") as client:
        async def elsewhere():
            await client.spawn("echo", "x")
            return "started"

        await attempt(said, "another session", elsewhere())
    command = [sys.executable, "-m", "pisub", "run", "-d", "fail", "x", "--allow-agents", "fail"]
    said["command line"] = subprocess.run(command, capture_output=True, cwd=child.cwd).returncode
    command = [sys.executable, "-m", "pisub", "host", "--answers", os.devnull, "--allow-agents", "fail"]
    said["host"] = subprocess.run(command, capture_output=True, cwd=child.cwd, timeout=60).returncode
    try:
        await child.ask("May I?")
    except pisub.PisubError as error:
        said["ask"] = error.code
    child._can_ask = True
    said["forged ask"] = (await child.ask("May I?")).status
    return json.dumps(said)


async def resumed(client):
    run = await client.spawn("echo", "x")
    await run.result()
    again = await run.resume("more")
    result = await again.result()
    return [result.state, result.output]
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = make_family(tmp_path / "project")
    (made.root / "greedy.py").write_text(GREEDY)
    front = """\
        ---
        name: greedy
        aliases: [g]
        description: Wants more than it is given.
        runner: {type: python, target: "greedy:greedy"}
        ---
        """
    (made.root / ".pisub/agents/greedy.md").write_text(textwrap.dedent(front))
    trust(made.settings, made.root)
    return made


def ceiling(*sources: str, **policy: Any) -> CapabilityCeiling:
    found = intersect([check_ceiling(policy, source) for source in sources])
    assert found is not None
    return found


def written(record: dict[str, Any]) -> bytes:
    """Return a record's bytes as pisub writes them."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def test_what_a_preflight_shows_is_what_status_result_and_journal_say(project: Project) -> None:
    async def main() -> None:
        async with pisub.host("s", ScriptedHuman()) as host:
            layout, run_id = host.client.layout, new_id()
            limit = host.register_ceiling("plan", {"allowedTools": ["read"]})
            shown = await host.preflight("echo", "the task", project.root, run_id=run_id)
            assert shown.ok
            run = await host.spawn("echo", "the task", project.root, run_id=run_id)
            limit.dispose()
            assert await run.text() == "the task"
            view = read_run(layout, run.id)
            status, result, launch = view.status, view.result, view.spec.launch
            assert status is not None
            assert result is not None
            assert launch is not None
            contract = shown.contract
            digests = (contract.agent.definition_digest, contract.launch_contract_digest, contract.digest)
            for each in (launch, status, result):
                assert (each.definition_digest, each.launch_contract_digest, each.contract_digest) == digests
            assert status.context == contract.context == "fresh"
            audit = contract.tools.capability_audit
            assert audit is not None
            assert audit.effective_tools == ("read",)
            holders = (view.spec, status, *status.steps, result, *result.results)
            for holder in holders:
                assert (holder.capability_ceiling, holder.capability_audit) == (audit.ceiling, audit)
            events = {each.type: each.data for each in JournalReader(layout.run(run.id).events).read_new()}
            assert events["subagent.run.started"]["launchContractDigest"] == digests[1]
            assert events["subagent.capability-ceiling.applied"] == {
                "stepIndex": 0,
                "ceiling": msgspec.json.decode(msgspec.json.encode(audit.ceiling)),
                "audit": msgspec.json.decode(msgspec.json.encode(audit)),
            }

    asyncio.run(main())


def test_an_agent_that_is_not_allowed_starts_no_process_by_name_or_alias(project: Project) -> None:
    async def main() -> None:
        async with pisub.host("s", ScriptedHuman()) as host:
            host.register_ceiling("plan", {"allowedAgents": ["echo"]})
            for name in ("fail", "g"):
                with pytest.raises(
                    RefusedError, match=r"\(plan\) does not allow agent .*Allowed agents: echo"
                ) as caught:
                    await host.spawn(name, "x", project.root)
                assert caught.value.code == "restricted_agent"
            with pytest.raises(RefusedError, match="does not allow agent"):
                await host.spawn_all([pisub.Task(agent=name, task="x", cwd=project.root) for name in ("echo", "fail")])
            assert await host.runs(include_finished=True) == []
            async with pisub.connect("other") as client:
                run = await client.spawn("talk", "x", project.root)
                assert await run.text() == "talked"

    asyncio.run(main())


def test_a_ceiling_is_carried_down_and_outlives_its_registration(project: Project) -> None:
    async def main() -> None:
        async with pisub.host("s", ScriptedHuman(["left", "because"]), max_depth=3) as host:
            layout = host.client.layout
            allowed = {"allowedAgents": ["parent", "ask"], "allowedTools": ["subagent", "read"]}
            handle = host.register_ceiling("plan", allowed)
            tree = plan(("parent", plan(("ask", "x"))), ("parent", plan(("fail", "x"))))
            run = await host.spawn("parent", as_task(tree), project.root, ceiling={"allowedTools": ["subagent"]})
            handle.dispose()
            asked, refused = (msgspec.json.decode(each[2]) for each in msgspec.json.decode(await run.text()))
            assert asked[0][:2] == ["failed", "agent-error"]  # the child asked, which its ceiling does not allow
            assert refused["code"] == "restricted_agent"
            held = check_ceiling({"allowedAgents": ["ask", "parent"], "allowedTools": ["subagent"]}, "plan")
            expected = msgspec.structs.replace(held, sources=("launch", "plan"))
            below = [run.id, *children_of(layout, run.id)]
            below += [each for child in below[1:] for each in children_of(layout, child)]
            assert len(below) == 4
            assert {read_run(layout, each).spec.capability_ceiling for each in below} == {expected}

    asyncio.run(main())


def test_who_may_not_call_subagent_starts_nothing(project: Project) -> None:
    async def main() -> None:
        async with pisub.host("s", ScriptedHuman()) as host:
            run = await host.spawn(
                "parent", as_task(plan(("echo", "x"))), project.root, ceiling={"allowedTools": ["read"]}
            )
            assert msgspec.json.decode(await run.text())["code"] == "denied_tool"

    asyncio.run(main())


def test_a_hostile_child_widens_nothing(project: Project) -> None:
    async def main() -> None:
        async with pisub.host("s", ScriptedHuman(["yes"] * 9)) as host:
            allowed = {"allowedAgents": ["greedy", "echo", "ask"], "allowedTools": ["read", "subagent"]}
            host.register_ceiling("plan", allowed)
            run = await host.spawn("greedy", "take", project.root)
            said = msgspec.json.decode(await run.text())
            assert said == {
                "register": "child_refused",
                "forbidden agent": "restricted_agent",
                "forbidden agent by a wider ceiling": "restricted_agent",
                "allowed agent": ["complete", "x"],
                "asking agent": ["failed", ""],
                "resume": ["complete", "x"],
                "another session": "session_not_own",
                "command line": 10,
                "host": 10,
                "ask": "refused",
                "forged ask": "error",
            }
            limit = check_ceiling(allowed, "plan")
            for view in await host.runs(include_finished=True):
                found = view.spec.capability_ceiling
                assert found is not None
                assert intersect([found, limit]) == found
                assert not view.spec.agent.can_ask

    asyncio.run(main())


def test_a_resume_keeps_the_ceiling_meets_the_sessions_and_believes_no_copy_that_is_wider(project: Project) -> None:
    async def main() -> None:
        async with pisub.host("s", ScriptedHuman()) as host:
            layout = host.client.layout
            run = await host.spawn(
                "echo", "x", project.root, ceiling={"allowedAgents": ["echo", "fail"], "allowedTools": ["read", "bash"]}
            )
            await run.result()
            host.register_ceiling("plan", {"allowedTools": ["bash", "grep"]})
            paths = layout.run(run.id)
            status = msgspec.json.decode(paths.status.read_bytes())
            status["capabilityCeiling"]["allowedTools"] = ["bash", "grep", "read", "write"]
            paths.status.write_bytes(written(status))
            resumed = await run.resume("more")
            await resumed.result()
            found = read_run(layout, resumed.id).spec.capability_ceiling
            expected = check_ceiling({"allowedAgents": ["echo", "fail"], "allowedTools": ["bash"]}, "x")
            assert found == msgspec.structs.replace(expected, sources=("launch", "plan"))
            del status["capabilityCeiling"]["sources"]
            paths.status.write_bytes(written(status))
            with pytest.raises(RecordCorruptError):
                await run.resume("more")

    asyncio.run(main())


def test_a_run_whose_agent_is_forbidden_since_is_not_gone_on_with(project: Project) -> None:
    async def main() -> None:
        async with pisub.host("s", ScriptedHuman()) as host:
            run = await host.spawn("echo", "x", project.root)
            await run.result()
            host.register_ceiling("plan", {"allowedAgents": ["talk"]})
            with pytest.raises(RefusedError) as caught:
                await run.resume("more")
            assert caught.value.code == "restricted_agent"

    asyncio.run(main())


ASKER = """
    async def main(child):
        return (await child.ask("May I?")).status
"""


def test_the_runner_takes_away_what_a_spec_grants_beyond_its_ceiling(project: Project, tmp_path: Path) -> None:
    limit = ceiling("plan", allowedTools=[])
    spec = submit(project.settings, python_runner(tmp_path, ASKER), cwd=tmp_path, capability_ceiling=limit)
    assert spec.agent.can_ask
    _, result = execute(project.settings, spec)
    assert (result.state, result.capability_ceiling) == (RunState.FAILED, limit)
    assert "may not ask" in (result.error or "")


def test_the_runner_starts_no_agent_that_its_ceiling_or_the_one_above_forbids(project: Project, tmp_path: Path) -> None:
    runner = python_runner(tmp_path, "async def main(child): return 'ran'")
    above = submit(project.settings, runner, cwd=tmp_path, capability_ceiling=ceiling("above", allowedAgents=["other"]))
    for fields in ({"capability_ceiling": ceiling("own", allowedAgents=[])}, {"parent_run_id": above.run_id}):
        _, result = execute(project.settings, submit(project.settings, runner, cwd=tmp_path, **fields))
        assert (result.state, result.reason, result.output) == (RunState.FAILED, "restricted_agent", "")


@pytest.mark.parametrize("mode", ["inline", "file-only"])
def test_a_result_is_also_written_where_the_launch_says(project: Project, mode: str) -> None:
    async def main() -> None:
        async with pisub.host("s", ScriptedHuman()) as host:
            target = project.root / "out" / "r.md"
            run = await host.spawn("echo", "the text", project.root, output="out/r.md", output_mode=mode)
            result = await run.result()
            assert target.read_text() == "the text"
            assert result.saved_output == str(target)
            assert result.output == ("the text" if mode == "inline" else f"The result is in {target} (8 bytes).")
            assert [each.name for each in target.parent.iterdir()] == ["r.md"]

    asyncio.run(main())


def test_an_output_that_cannot_be_written_fails_no_run_and_is_not_advertised(project: Project) -> None:
    async def main() -> None:
        async with pisub.host("s", ScriptedHuman()) as host:
            (project.root / "dir").mkdir()
            run = await host.spawn("echo", "the text", project.root, output="dir", output_mode="file-only")
            result = await run.result()
            assert (result.state, result.output, result.saved_output) == (RunState.COMPLETE, "the text", None)
            events = JournalReader(host.client.layout.run(run.id).events).read_new()
            (failed,) = [each.data["error"] for each in events if each.type == "subagent.output.failed"]
            assert "is no file" in failed

    asyncio.run(main())


def test_two_of_a_batch_that_would_write_one_file_are_refused_before_any_starts(project: Project) -> None:
    front = "---\nname: {0}\ndescription: d\noutput: {1}\nrunner: {{type: external-cli, argv: [cat]}}\n---\n"
    for name, output in (("one", "r.md"), ("two", "./sub/../R.md")):
        (project.root / f".pisub/agents/{name}.md").write_text(front.format(name, output))
    trust(project.settings, project.root)

    async def main() -> None:
        async with pisub.host("s", ScriptedHuman()) as host:
            with pytest.raises(pisub.PisubError, match=r"tasks\[0\] and tasks\[1\] would both write"):
                await host.spawn_all([pisub.Task(agent=name, task="x", cwd=project.root) for name in ("one", "two")])
            assert await host.runs(include_finished=True) == []

    asyncio.run(main())


def test_a_registered_agent_runs_and_no_other_program_sees_it(project: Project) -> None:
    definition = {
        "description": "d",
        "systemPrompt": "Say it.",
        "runner": {"type": "external-cli", "argv": ["cat"]},
        "defaultTimeoutMs": 50_000,
    }

    async def main() -> None:
        async with pisub.host("s", ScriptedHuman()) as host:
            registration = host.register_agent("probe", definition)
            run = await host.spawn("probe", "hello", project.root)
            assert await run.text() == "Say it.\n\nhello"
            spec = (await run.view()).spec
            assert (spec.agent.source, spec.agent.file, spec.timeout_ms) == ("runtime", "runtime:probe", 50_000)
            async with pisub.connect("s") as client:
                with pytest.raises(pisub.PisubError, match="No agent is called"):
                    await client.spawn("probe", "hello", project.root)
            registration.dispose()
            with pytest.raises(pisub.PisubError, match="No agent is called"):
                await host.spawn("probe", "hello", project.root)

    asyncio.run(main())


def test_the_layout_of_a_session_without_a_ceiling_has_no_directory_for_them(project: Project) -> None:
    run_id = project.launch("echo")
    layout = Layout.of(project.settings)
    assert not layout.session(read_run(layout, run_id).spec.session_id).ceilings.exists()
