"""``pisub broker``: figures and a live trace of a broker at work, and what neither shows."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pisub.cli.exits import Exit
from pisub.client.bus import Bus
from pisub.config import Settings
from pisub.launch import find_broker
from pisub.process import Liveness, liveness, send_signal
from pisub.protocol.session import PeerKind
from tests.support.bus_peer import Echo, Said, Say
from tests.support.eventually import eventually_async
from tests.support.project import Project, make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path)


@pytest.fixture
def tracer(project: Project) -> Iterator[subprocess.Popen[bytes]]:
    assert project.pisub("broker", "start").code == Exit.OK
    with project.start("broker", "trace", "--json") as process:
        assert process.stderr is not None
        assert process.stdout is not None
        assert b"tracing" in process.stderr.readline()
        yield process
        process.kill()


async def one_call(settings: Settings) -> None:
    async with (
        await Bus.connect(settings, kind=PeerKind.CLIENT, address="asker:1") as asker,
        await Bus.connect(settings, kind=PeerKind.CLIENT, address="echo:1") as answerer,
    ):
        Echo(answerer)
        await answerer.claim("echo", "s")
        assert await asker.call("role:echo", Say(text="a secret"), Said, timeout_s=20, scope="s")


def test_a_trace_shows_each_envelope_on_a_line_and_no_body(project: Project, tracer: subprocess.Popen[bytes]) -> None:
    asyncio.run(one_call(project.settings))
    assert tracer.stdout is not None
    seen: list[dict[str, Any]] = []
    raw = b""
    while not any(each["name"] == "REPLY" and each.get("sender") == "echo:1" for each in seen):
        line = tracer.stdout.readline()
        raw += line
        seen.append(msgspec.json.decode(line))
    assert {each["kind"] for each in seen} == {"trace"}
    call = next(each for each in seen if each["name"] == "CALL")
    assert (call["sender"], call["to"], call["scope"]) == ("asker:1", "role:echo", "s")
    routed = next(each for each in seen if each["name"] == "ROUTED")
    assert (routed.get("sender", ""), routed["to"]) == ("", "asker:1")
    assert b"secret" not in raw
    tracer.send_signal(signal.SIGINT)
    assert tracer.wait(10) == Exit.OK


def test_a_trace_ends_when_its_reader_goes_away(project: Project) -> None:
    assert project.pisub("broker", "start").code == Exit.OK
    command = [sys.executable, "-m", "pisub", "broker", "trace"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=project.root) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"tracing" in process.stderr.readline()
        process.stdout.close()
        asyncio.run(one_call(project.settings))
        assert process.wait(10) == Exit.BROKEN_PIPE


def test_a_trace_without_a_broker_starts_none(project: Project) -> None:
    assert project.pisub("broker", "trace").code == Exit.NOT_FOUND
    assert project.pisub("broker", "status").code == Exit.NOT_FOUND


def test_the_status_has_peers_roles_queues_drops_refusals_rates_uptime_and_epoch(project: Project) -> None:
    async def work() -> Any:
        async with await Bus.connect(project.settings, kind=PeerKind.HOST, address="host:1", session="s") as bus:
            await bus.claim("host", "s")
            process = await asyncio.to_thread(project.pisub, "broker", "status", "--json")
            text = await asyncio.to_thread(project.pisub, "broker", "status")
            return process, text

    status, text = asyncio.run(work())
    shown = status.json
    peer = next(each for each in shown["peers"] if each["address"] == "host:1")
    assert (peer["kind"], peer["session"]) == ("host", "s")
    assert [(each["role"], each["scope"], each["address"]) for each in shown["roles"]] == [("host", "s", "host:1")]
    assert shown["uptimeMs"] >= 0
    assert shown["epoch"]
    assert {"received", "peers", "queued_bytes", "suspended_now"} <= set(shown["counters"])
    assert "host:1" in text.out


def test_a_stopped_broker_is_named_holds_up_nobody_and_ends_by_force(project: Project) -> None:
    assert project.pisub("broker", "start").code == Exit.OK
    info = find_broker(project.settings)
    assert info is not None
    assert send_signal(info.process, signal.SIGSTOP)
    said = f"The broker (pid {info.process.pid}) does not answer; it is stopped: `kill -CONT {info.process.pid}`"
    for arguments in (("broker", "status"), ("broker", "stop"), ("run", "echo", "hello")):
        began = time.monotonic()
        outcome = project.pisub(*arguments)
        assert (outcome.code, said in outcome.err) == (Exit.UNAVAILABLE, True), outcome
        assert time.monotonic() - began < 10, arguments
    assert said in project.pisub("doctor").out
    run_id = project.launch("echo", "hello")
    assert project.pisub("wait", run_id).code == Exit.OK
    forced = project.pisub("broker", "stop", "--force")
    assert (forced.code, liveness(info.process)) == (Exit.OK, Liveness.DEAD), forced
    assert f"(pid {info.process.pid}) was killed" in forced.err
    assert project.pisub("run", "echo", "again").out == "again\n"


def test_who_is_connected_notices_a_stopped_broker_and_comes_back_when_it_goes_on(project: Project) -> None:
    async def scenario() -> None:
        async with await Bus.connect(project.settings, kind=PeerKind.CLIENT) as bus:
            info = find_broker(project.settings)
            assert info is not None
            assert send_signal(info.process, signal.SIGSTOP)
            await eventually_async(lambda: not bus.is_connected, what="the silence is noticed")
            assert send_signal(info.process, signal.SIGCONT)
            await eventually_async(lambda: bus.is_connected, what="the client is known again")
            assert bus.epoch == info.epoch

    asyncio.run(scenario())
