"""RPC v1, as a client of the broker meets it: calls, topics, the command line; against a real host and real runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import pisub
from pisub.cli.exits import Exit
from pisub.client.bus import Bus, Incoming
from pisub.errors import PisubError
from pisub.protocol.rpc import (
    RPC_METHODS,
    RPC_READY_TOPIC,
    RPC_REPLY_PREFIX,
    RPC_REQUEST_TOPIC,
    RpcFault,
    RpcReady,
    RpcReply,
    RpcRequest,
)
from pisub.protocol.session import PeerKind
from pisub.record.control import read_all_requests
from pisub.record.reader import read_run
from pisub.testing import ScriptedHuman
from tests.support.eventually import eventually, eventually_async
from tests.support.loops import in_loop
from tests.support.project import Project
from tests.support.steered_project import make_steered_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_steered_project(tmp_path / "project")


async def code_of(client: pisub.Client, method: str, params: dict[str, Any] | None = None) -> str:
    try:
        await client.rpc(method, params)
    except PisubError as error:
        return error.code
    return ""


@in_loop
async def test_a_run_is_spawned_steered_looked_at_stopped_and_gone_on_with(project: Project) -> None:
    async with pisub.host("s", ScriptedHuman([])) as host, pisub.connect("s") as client:
        about = await client.rpc("ping")
        assert tuple(about["methods"]) == RPC_METHODS
        assert about["session"]["sessionId"] == "s"
        spawned = await client.rpc("spawn", {"agent": "listen", "task": "x", "cwd": str(project.root)})
        run_id = spawned["details"]["runId"]
        run = host.run(run_id)
        steered = await client.rpc("steer", {"id": run_id, "message": "look left"})
        assert steered["details"]["steering"]["sourceRunId"] == run_id
        status = await client.rpc("status", {"id": run_id})
        assert run_id in status["text"]
        assert status["asyncSnapshot"]["runs"][0]["id"] == run_id
        assert (await client.rpc("status"))["fleet"]["totalActive"] == 1
        await client.rpc("interrupt", {"runId": run_id[:10]})
        assert (await run.result()).state == "paused"
        assert await code_of(client, "stop", {"id": run_id}) == "invalid_state"
        resumed = await client.rpc("resume", {"dir": spawned["details"]["asyncDir"], "message": "go on"})
        second = host.run(resumed["details"]["runId"])
        assert await code_of(client, "resume", {"id": run_id, "message": "me too"}) == "execution_failed"
        await eventually_async(lambda: second_is_running(host, second.id), what="it runs")
        stopped = await client.rpc("stop", {"id": second.id})
        assert (stopped["state"], stopped["previousState"], stopped["runId"]) == ("stopping", "running", second.id)
        assert (await second.result()).state == "stopped"
        asked = read_all_requests(host.client.layout.run(second.id))
        assert {kind: each.source for kind, each in asked.items()} == {"stop": "rpc-stop"}


def second_is_running(host: pisub.Host, run_id: str) -> bool:
    return read_run(host.client.layout, run_id).status is not None


@in_loop
async def test_what_cannot_be_done_is_refused_by_its_code(project: Project) -> None:
    async with (
        pisub.host("s", ScriptedHuman([])),
        pisub.connect("s") as client,
        pisub.connect("t") as stranger,
    ):
        foreign = await stranger.spawn("listen", "x", project.root)
        for params, code in (
            ({"id": foreign.id}, "not_found"),
            ({"id": "0" * 26}, "not_found"),
            ({"id": "../../etc"}, "invalid_params"),
            ({"id": "0000"}, "invalid_params"),
            ({"dir": "/etc"}, "invalid_params"),
            ({}, "invalid_params"),
        ):
            assert (params, await code_of(client, "stop", params)) == (params, code)
        assert await code_of(client, "interrupt") == "execution_failed"
        assert await code_of(client, "manage", {"action": "schedule.list"}) == "execution_failed"
        assert await code_of(client, "spawn", {"workflowScript": "x"}) == "execution_failed"
        assert await code_of(client, "spawn", {"agent": "nobody", "task": "x"}) == "execution_failed"
        assert await code_of(client, "status", {"id": foreign.id}) == "execution_failed"
        assert await code_of(stranger, "ping") == "not_delivered"
        assert read_all_requests(client.layout.run(foreign.id)) == {}
        await foreign.stop()


@in_loop
async def test_requests_and_replies_go_by_topics_too_and_a_bad_id_is_answered_on_unknown_alone(
    project: Project,
) -> None:
    async with await Bus.connect(project.settings, kind=PeerKind.CLIENT, session="s") as bus:
        replies: asyncio.Queue[Incoming] = asyncio.Queue()
        ready: asyncio.Queue[Incoming] = asyncio.Queue()
        await bus.subscribe(RPC_REPLY_PREFIX, replies.put_nowait, is_prefix=True, scope="s")
        await bus.subscribe(RPC_READY_TOPIC, ready.put_nowait, scope="s")
        async with pisub.host("s", ScriptedHuman([])):
            assert (await ready.get()).decode(RpcReady).methods == RPC_METHODS
            for ident, topic in (("7", "7"), ("a\nb", "unknown"), (None, "unknown")):
                request = RpcRequest(version=1, request_id=ident, method="ping")
                bus.publish(RPC_REQUEST_TOPIC, request, scope="s")
                came = await replies.get()
                reply = came.decode(RpcReply)
                assert (came.topic, reply.request_id) == (RPC_REPLY_PREFIX + topic, topic)
                assert reply.success is (topic == "7")
                if topic == "unknown":
                    assert isinstance(reply.error, RpcFault)
                    assert reply.error.code == "invalid_request"
            assert replies.empty()


def test_from_the_command_line(project: Project) -> None:
    assert project.pisub("rpc", "ping", "--session", "s").code == Exit.UNAVAILABLE
    (project.root / "answers.yaml").write_text("- ok\n")
    with project.start("host", "--session", "s", "--answers", "answers.yaml") as host:
        try:
            eventually(lambda: project.pisub("rpc", "ping", "--session", "s").code == Exit.OK, what="the host is there")
            assert project.pisub("rpc", "status", "--session", "s", "--json").json["data"]["fleet"]["totalActive"] == 0
            wrong = project.pisub("rpc", "steer", "--session", "s", "--params", "{}", "--json")
            assert wrong.json["code"] == "invalid_params"
            assert project.pisub("rpc", "steer", "--session", "s", "--params", "[").code == Exit.USAGE
        finally:
            host.terminate()
            host.communicate()
    alone = project.pisub("rpc", "ping", "--session", "s", "--json")
    assert (alone.code, alone.json["code"]) == (Exit.REFUSED, "no_active_session")
