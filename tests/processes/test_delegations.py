"""Structured delegation through a real host: `client.delegate`, the topics, cancellation, and forty at once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import pisub
from pisub.agents.trust import trust
from pisub.client.bus import Incoming
from pisub.errors import RemoteError
from pisub.protocol.base import Message
from pisub.protocol.delegation import (
    SUBAGENT_DELEGATION_CANCEL_EVENT,
    SUBAGENT_DELEGATION_REQUEST_EVENT,
    SUBAGENT_DELEGATION_RESPONSE_EVENT,
    SUBAGENT_DELEGATION_STARTED_EVENT,
    DelegationCancel,
    DelegationRequest,
    DelegationResponse,
    DelegationUpdate,
)
from pisub.protocol.runs import RunState
from pisub.testing import ScriptedHuman
from tests.support.project import Project, make_project

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

AGENTS = '''
import asyncio
import pisub


async def number(child):
    child.report_usage(input=2, output=1, cost=0.5, model="m")
    child.structured_output({"n": int(child.task)})


async def tooled(child):
    try:
        with child.tool("read", path="x"):
            pass
    except pisub.PisubError:
        pass
    return "a good answer all the same"


async def greedy(child):
    """Delegate through the session's host, from inside a run."""
    async with pisub.connect(child.session_id) as client:
        try:
            await client.delegate("echo", "x", child.cwd)
        except pisub.PisubError as error:
            return error.code
    return "delegated"
'''


class RawRequest(Message, frozen=True, kw_only=True, tag=SUBAGENT_DELEGATION_REQUEST_EVENT):
    """A request of any form, as a stranger may publish one."""

    request_id: Any = msgspec.UNSET
    owner_run_id: Any = msgspec.UNSET
    node_id: Any = msgspec.UNSET
    agent: Any = msgspec.UNSET
    task: Any = msgspec.UNSET
    context: Any = msgspec.UNSET
    cwd: Any = msgspec.UNSET
    model: Any = msgspec.UNSET
    result: Any = msgspec.UNSET
    version: Any = msgspec.UNSET


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = make_project(tmp_path / "project")
    (made.root / "delegated.py").write_text(AGENTS)
    for name in ("number", "tooled", "greedy"):
        runner = json.dumps({"type": "python", "target": f"delegated:{name}"})
        (made.root / f".pisub/agents/{name}.md").write_text(
            f"---\nname: {name}\ndescription: d\nrunner: {runner}\n---\n"
        )
    (made.root / ".pisub/agents/cat.md").write_text(
        "---\nname: cat\ndescription: d\nrunner: {type: external-cli, argv: [cat]}\n---\n"
    )
    trust(made.settings, made.root)
    return made


class Seen:
    """What is published of delegations in a session."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.responses: list[DelegationResponse] = []
        self._came = asyncio.Event()

    def take(self, came: Incoming) -> None:
        if came.topic == SUBAGENT_DELEGATION_RESPONSE_EVENT:
            self.responses.append(came.decode(DelegationResponse))
        else:
            self.started.append(msgspec.msgpack.decode(came.body)["requestId"])
        self._came.set()

    async def until(self, *, started: int = 0, responses: int = 0) -> None:
        """Wait for so many; a hang is the test's time limit."""
        while len(self.started) < started or len(self.responses) < responses:
            self._came.clear()
            await self._came.wait()


@asynccontextmanager
async def session() -> AsyncIterator[tuple[pisub.Host, pisub.Client, Seen]]:
    seen = Seen()
    async with pisub.host("s", ScriptedHuman()) as host, pisub.connect("s") as client:
        for topic in (SUBAGENT_DELEGATION_RESPONSE_EVENT, SUBAGENT_DELEGATION_STARTED_EVENT):
            await client.bus.subscribe(topic, seen.take, scope="s")
        yield host, client, seen


def request(project: Project, request_id: str, agent: str, task: str = "t", node: str = "n") -> DelegationRequest:
    return DelegationRequest(
        request_id=request_id,
        owner_run_id="o",
        node_id=node,
        agent=agent,
        task=task,
        context="fresh",
        cwd=str(project.root),
        result={"kind": "text"},
    )


def test_a_delegation_gives_one_value_with_its_usage_and_the_digest_that_a_preflight_shows(project: Project) -> None:
    async def main() -> None:
        updates: list[DelegationUpdate] = []
        async with session() as (host, client, seen):
            response = await client.delegate("number", "7", project.root, schema=SCHEMA, on_update=updates.append)
            assert (response.status, response.value, response.error) == ("completed", {"n": 7}, None)
            assert (response.agent, response.model, response.exit_code) == ("number", "m", 0)
            usage = response.usage
            assert usage is not None
            assert (usage.input, usage.output, usage.cost, usage.turns, usage.tool_calls) == (2, 1, 0.5, 1, 1)
            shown = await client.preflight("number", "7", project.root, output_schema=SCHEMA, context="fresh")
            assert shown.ok
            assert response.launch_contract_digest == shown.contract.launch_contract_digest
            view = await client.run(str(response.run_id)).view()
            assert view.spec.attached_to is not None
            await seen.until(started=1, responses=1)
            assert seen.responses == [response]
            assert {each.run_id for each in updates} <= {response.run_id}
            text = await host.delegate("echo", '{"n": 1}', project.root)
            assert text.result == {"kind": "text", "text": '{"n": 1}'}

    asyncio.run(main())


def test_every_end_of_a_run_is_a_status(project: Project) -> None:
    async def main() -> None:
        async with session() as (_, client, _seen):
            root = project.root
            budget = {"hard": 0, "block": "*"}
            answers = await asyncio.gather(
                client.delegate("fail", "x", root),
                client.delegate("sleep", "x", root, timeout_ms=200),
                client.delegate("echo", '{"n": 1}', root, schema=SCHEMA),
                client.delegate("tooled", "x", root, tool_budget=budget),
                client.delegate("tooled", "x", root, tool_budget={"hard": 1, "block": "*"}),
                client.delegate("number", "1", root, schema=SCHEMA, tool_budget=budget),
                client.delegate("nobody", "x", root),
                client.delegate("cat", "x", root, tool_budget=budget),
                client.delegate("echo", "x", root / "missing"),
                client.delegate("echo", "x", root, thinking="much"),
            )
            assert [each.status for each in answers] == [
                "failed",
                "timed_out",
                "structured_output_failed",
                "tool_budget_exhausted",
                "completed",
                "tool_budget_exhausted",
                "failed",
                "failed",
                "failed",
                "invalid_request",
            ]
            assert [each.result for each in answers if each.status != "completed"] == [None] * 9
            assert "ValueError" in str(answers[0].error)
            assert "keeps no budget" in str(answers[7].error)

    asyncio.run(main())


def test_cancelling_the_caller_ends_the_run_and_the_node_is_free_again(project: Project) -> None:
    async def main() -> None:
        async with session() as (_, client, seen):
            node = {"owner_run_id": "o", "node_id": "n"}
            first = asyncio.ensure_future(client.delegate("sleep", "x", project.root, request_id="1", **node))
            await seen.until(started=1)
            duplicate = await client.delegate("echo", "x", project.root, request_id="2", **node)
            assert (duplicate.status, duplicate.error) == ("duplicate_node", None)
            first.cancel()
            await seen.until(responses=2)
            assert seen.responses[-1].status == "cancelled"
            again = await client.delegate("echo", "x", project.root, request_id="3", **node)
            assert again.text == "x"
            assert [each.state for each in await client.runs(include_finished=True)] == [
                RunState.COMPLETE,
                RunState.STOPPED,
            ]
            with pytest.raises(RemoteError) as raised:
                await client.delegate("echo", "x", project.root, request_id="3", **node)
            assert raised.value.code == "attempt_settled"

    asyncio.run(main())


def test_two_callers_of_one_attempt_get_the_one_answer(project: Project) -> None:
    async def main() -> None:
        async with session() as (_, client, seen):
            identity = {"request_id": "r", "owner_run_id": "o", "node_id": "n"}
            calls = [asyncio.ensure_future(client.delegate("release", "x", project.root, **identity)) for _ in "12"]
            await seen.until(started=1)
            (project.root / "go").touch()
            one, other = await asyncio.gather(*calls)
            assert one == other
            assert one.text == "released"
            assert len(await client.runs(include_finished=True)) == 1

    asyncio.run(main())


def test_on_the_topics_strangers_get_the_same_answers(project: Project) -> None:
    async def main() -> None:
        async with session() as (_, client, seen):

            def publish(message: Message) -> None:
                topic = SUBAGENT_DELEGATION_CANCEL_EVENT
                is_cancel = isinstance(message, DelegationCancel)
                client.bus.publish(topic if is_cancel else SUBAGENT_DELEGATION_REQUEST_EVENT, message, scope="s")

            publish(DelegationCancel(request_id="early", owner_run_id="o", node_id="n"))
            publish(request(project, "early", "echo"))
            publish(request(project, "late", "echo", "said"))
            publish(request(project, "late", "echo", "said"))
            publish(RawRequest(request_id="old", agent="a", task="t", context="fresh", cwd="/", model="m"))
            publish(RawRequest(request_id="new", owner_run_id="o", node_id="x", version=2))
            publish(RawRequest(agent="a"))
            await seen.until(responses=4)
            found = {each.request_id: each for each in seen.responses}
            assert found["early"].status == "cancelled"
            assert found["late"].text == "said"
            assert (found["old"].is_error, found["old"].messages) == (True, [])
            assert found["new"].error == "Unsupported delegation field: version"
            publish(request(project, "late", "echo", "said"))
            publish(request(project, "last", "echo", "x" * 1_000_000))
            await seen.until(responses=5)
            assert len(seen.responses[-1].text) == 1_000_000
            assert seen.started == ["late", "last"]

    asyncio.run(main())


def test_without_a_host_nothing_is_available(project: Project) -> None:
    async def main() -> None:
        async with pisub.connect("s") as client:
            response = await client.delegate("echo", "x", project.root)
            assert response.status == "unavailable_context"
            assert "no host" in str(response.error)

    asyncio.run(main())


def test_a_child_cannot_delegate_through_its_session_s_host(project: Project) -> None:
    async def main() -> None:
        async with session() as (_, client, seen):
            run = await client.spawn("greedy", "x", project.root)
            assert await run.text() == "child_refused"
            assert seen.responses == []

    asyncio.run(main())


def test_a_host_that_ends_ends_what_it_runs_and_says_so_to_who_waits(project: Project) -> None:
    async def main() -> None:
        async with pisub.connect("s") as client:
            async with pisub.host("s", ScriptedHuman()):
                is_launched = asyncio.Event()
                work = client.delegate("sleep", "x", project.root, on_update=lambda _: is_launched.set())
                waiting = asyncio.ensure_future(work)
                await is_launched.wait()
            with pytest.raises(pisub.PisubError):
                await waiting
            for view in await client.runs(include_finished=True):
                assert (await client.run(view.run_id).result()).state is RunState.STOPPED

    asyncio.run(main())


def test_forty_at_once_are_each_answered_once(project: Project) -> None:
    async def main() -> None:
        async with session() as (_, client, seen):
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(client.delegate("number", str(n), project.root, schema=SCHEMA)) for n in range(40)
                ]
            assert [task.result().value for task in tasks] == [{"n": n} for n in range(40)]
            await seen.until(started=40, responses=40)
            assert set(Counter(each.request_id for each in seen.responses).values()) == {1}

    asyncio.run(main())
