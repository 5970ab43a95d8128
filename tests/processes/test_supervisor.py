"""A child and the session that started it, in processes of their own."""

from __future__ import annotations

import asyncio
import signal
import textwrap
from pathlib import Path

import msgspec
import pytest

import pisub
from pisub.cli.exits import Exit
from pisub.client.waiting import WaitEnd
from pisub.errors import InvalidArgumentError, QuestionClosedError, RefusedError
from pisub.hosting.supervisor import Supervisor
from pisub.launch import find_broker
from pisub.process import send_signal
from pisub.protocol.runs import RunState
from pisub.record.layout import Layout
from pisub.record.supervisor import list_requests, reply_to_request
from pisub.runs.supervision import SupervisorRequest
from pisub.testing import ScriptedHuman
from tests.support.eventually import eventually, eventually_async
from tests.support.loops import in_loop
from tests.support.project import Project, make_project
from tests.support.scripts import add_script

AGENTS = """
import asyncio
from pisub import PisubError


async def decide(child):
    reply = await child.contact_supervisor("need_decision", f"{child.task}?")
    return f"decided: {reply.message}"


async def interview(child):
    await child.contact_supervisor("progress_update", "begun")
    reply = await child.contact_supervisor("interview_request", interview={"ask": ["name"]})
    return f"{reply.structured}"


async def hurry(child):
    try:
        await child.contact_supervisor("need_decision", "quick?", timeout_s=0.3)
    except PisubError as error:
        return f"{error.code}: {error.message}"


async def change_of_mind(child):
    task = asyncio.create_task(child.contact_supervisor("need_decision", "never mind?"))
    done, _ = await asyncio.wait({task}, timeout=0.3)
    task.cancel()
    await asyncio.wait({task})
    return f"{done} {task.cancelled()}"


async def decide_and_listen(child):
    reply = await child.contact_supervisor("need_decision", "which?")
    message = await child.next_message()
    return f"{reply.message}, {message.text}"
"""
NAMES = ("decide", "interview", "hurry", "change_of_mind", "decide_and_listen")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    from pisub.agents.trust import trust  # noqa: PLC0415

    made = make_project(tmp_path / "project", is_trusted=False)
    (made.root / "contacting_agents.py").write_text(AGENTS)
    for name in NAMES:
        front = f"name: {name}\ndescription: Contacts.\nrunner:\n  type: python\n  target: contacting_agents:{name}\n"
        (made.root / ".pisub" / "agents" / f"{name}.md").write_text(f"---\n{textwrap.dedent(front)}---\n")
    trust(made.settings, made.root)
    return made


async def pending(host: pisub.Host, count: int) -> list[SupervisorRequest]:
    def look() -> list[SupervisorRequest]:
        found = list_requests(host.client.layout, host.session_id, now_ms=0)
        return found if len(found) == count else []

    return await eventually_async(look, what=f"{count} requests wait")


@in_loop
async def test_a_decision_waits_for_the_reply_and_the_first_wins(project: Project) -> None:
    async with pisub.host("s", ScriptedHuman([])) as host:
        runs = [await host.spawn("decide", task, project.root) for task in ("a", "b")]
        found = {each.message: each for each in await pending(host, 2)}
        assert {each.run_id for each in found.values()} == {run.id for run in runs}
        with pytest.raises(InvalidArgumentError, match="Several"):
            await host.supervisor.reply("which?")
        with pytest.raises(InvalidArgumentError, match="text"):
            await host.supervisor.reply("  ", reply_to=found["a?"].id)
        assert (await host.supervisor.reply("first", reply_to=found["a?"].id)).run_id == runs[0].id
        with pytest.raises(QuestionClosedError):
            reply_to_request(Layout.of(project.settings), found["a?"], "late", now_ms=1)
        await host.supervisor.reply("second")
        assert [await run.text() for run in runs] == ["decided: first", "decided: second"]
        assert await host.supervisor.pending() == []


@in_loop
async def test_a_handler_hears_of_everything_and_one_that_fails_loses_nothing(project: Project) -> None:
    heard: list[str] = []
    failures: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["message"]))

    async def handle(request: SupervisorRequest) -> None:
        heard.append(request.reason)
        if heard.count(request.reason) == 1:
            raise ZeroDivisionError

    async with pisub.host("s", ScriptedHuman([])) as host:
        host.supervisor.on_request(handle)
        run = await host.spawn("interview", "x", project.root)
        await eventually_async(lambda: len(heard) == 3, what="the update twice, the interview once")
        assert sorted(heard) == ["interview_request", "progress_update", "progress_update"]
        await host.supervisor.reply('```json\n{"name": "heron"}\n```', to="INTERVIEW")
        assert await run.text() == "{'name': 'heron'}"
        assert len(failures) == 2
    assert list_requests(Layout.of(project.settings), "s", now_ms=1) == []


@in_loop
async def test_without_a_reply_in_time_the_child_is_told_and_nothing_waits(project: Project) -> None:
    async with pisub.host("s", ScriptedHuman([])) as host:
        run = await host.spawn("hurry", "x", project.root)
        assert await run.text() == "supervisor_timeout: Timed out waiting for supervisor reply."
        assert await (await host.spawn("change_of_mind", "x", project.root)).text() == "set() True"
        assert await host.supervisor.pending() == []


@in_loop
async def test_no_other_session_sees_it_and_a_stopped_run_waits_for_nothing(project: Project) -> None:
    async with pisub.host("s", ScriptedHuman([])) as host, pisub.host("t", ScriptedHuman([])) as other:
        run = await host.spawn("decide", "mine", project.root)
        await pending(host, 1)
        assert await other.supervisor.pending() == []
        assert (await run.stop()).state is RunState.STOPPED
        assert await host.supervisor.pending() == []


@in_loop
async def test_a_run_that_waits_for_its_supervisor_says_so_ends_waits_and_takes_no_messages_meanwhile(
    project: Project,
) -> None:
    async with pisub.host("s", ScriptedHuman([])) as host:
        run = await host.spawn("decide_and_listen", "x", project.root)
        (request,) = await pending(host, 1)
        waited = await host.client.wait(run.id, stop_on_attention=False)
        assert (waited.end, waited.verdict.reason) == (WaitEnd.ATTENTION, f"{run.id}: waiting_for_supervisor")
        status = (await run.view()).status
        assert status is not None
        assert (status.activity_state, status.current_tool) == ("needs_attention", "contact_supervisor")
        with pytest.raises(RefusedError, match=request.id) as refused:
            await run.steer("hello")
        assert refused.value.code == "supervisor_pending"
        await host.supervisor.reply("this one")
        receipt = await run.steer("hello")
        assert receipt.state in {"pending", "delivered"}
        assert await run.text() == "this one, hello"
        kinds = [(each.type, each.data.get("kind")) async for each in run.events() if "supervisor" in each.type]
        assert kinds == [("subagent.supervisor.requested", None), ("subagent.supervisor.ended", "replied")]


@in_loop
async def test_a_request_outlives_the_host_and_the_broker_and_the_next_host_replies(project: Project) -> None:
    async with pisub.host("s", ScriptedHuman([])) as host:
        run = await host.spawn("decide", "again", project.root)
        (request,) = await pending(host, 1)
    broker = find_broker(project.settings)
    assert broker is not None
    send_signal(broker.process, signal.SIGKILL)
    async with pisub.host("s", ScriptedHuman([])) as host:
        assert [each.id for each in await host.supervisor.pending()] == [request.id]
        await host.supervisor.reply("yes")
        assert await host.run(run.id).text() == "decided: yes"


@in_loop
async def test_of_two_replies_at_once_one_wins_and_the_other_is_told(project: Project) -> None:
    async with pisub.host("s", ScriptedHuman([])) as host, pisub.connect("s") as other:
        run = await host.spawn("decide", "both", project.root)
        (request,) = await pending(host, 1)
        replies = [Supervisor(client.layout, "s").reply(word) for word, client in (("a", host.client), ("b", other))]
        outcomes = await asyncio.gather(*replies, return_exceptions=True)
        won = [word for word, outcome in zip("ab", outcomes, strict=True) if not isinstance(outcome, Exception)]
        assert len(won) == 1
        assert await run.text() == f"decided: {won[0]}"
        assert request.id in {getattr(outcome, "id", "") for outcome in outcomes}


@in_loop
async def test_a_child_that_is_killed_while_it_waits_is_waiting_no_more(project: Project) -> None:
    async with pisub.host("s", ScriptedHuman([])) as host:
        run = await host.spawn("decide", "mine", project.root)
        (request,) = await pending(host, 1)
        started = (await run.view()).started
        assert started is not None
        send_signal(started.process, signal.SIGKILL)
        assert (await run.result()).reason == "runner-died"
        assert await host.supervisor.pending() == []
        with pytest.raises(InvalidArgumentError, match="No pending"):
            await host.supervisor.reply("too late", reply_to=request.id)


def test_how_long_a_child_waits_is_a_setting(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PISUB_SUPERVISOR_TIMEOUT_MS", "1")
    run_id = project.launch("decide", "quick")
    assert project.pisub("wait", run_id).code == Exit.FAILED
    assert "Timed out waiting for supervisor reply" in project.pisub("show", run_id).out


def test_a_script_in_a_run_contacts_the_session_that_started_it(project: Project) -> None:
    add_script(
        project,
        "script",
        """
        pisub contact progress_update "half of it" || exit 1
        pisub contact need_decision "  " && exit 1
        pisub contact need_decision "now?" --timeout 0.01 2> /dev/null; echo "code $?"
        pisub contact interview_request --interview '{"ask": ["name"]}' --json
        """,
    )
    run_id = project.launch("script", "x", "--session", "s")

    def interview() -> list[dict[str, object]]:
        found = project.pisub("supervisor", "list", "--session", "s", "--json").json["requests"]
        return [each for each in found if each["reason"] == "interview_request"]

    eventually(interview, what="it waits")
    assert project.pisub("supervisor", "reply", '{"name": "heron"}', "--session", "s").code == Exit.OK
    assert project.pisub("wait", run_id).code == 0
    said = project.pisub("result", run_id).out.splitlines()
    assert said[0] == f"code {Exit.WAIT_TIMEOUT:d}"
    assert msgspec.json.decode(said[1])["structuredReply"] == {"name": "heron"}
    outside = project.pisub("contact", "need_decision", "x", "--json")
    assert (outside.code, outside.json["code"]) == (Exit.REFUSED, "not_in_a_run")


def test_from_the_command_line(project: Project) -> None:
    run_id = project.launch("decide", "well", "--session", "s")

    def listed() -> list[dict[str, object]]:
        found: list[dict[str, object]] = project.pisub("supervisor", "list", "--session", "s", "--json").json[
            "requests"
        ]
        return found

    [request] = eventually(listed, what="it waits")
    assert (request["reason"], request["message"], request["runId"]) == ("need_decision", "well?", run_id)
    assert "well?" in project.pisub("supervisor", "list", "--session", "s").out
    assert project.pisub("supervisor", "list", "--session", "t").err == "no open requests\n"
    assert project.pisub("supervisor", "reply", "x", "--session", "t").code == Exit.USAGE
    assert project.pisub("supervisor", "reply", " ", "--session", "s").code == Exit.USAGE
    assert project.pisub("supervisor", "reply", "-", "--to", "decide", "--session", "s", stdin="yes").code == Exit.OK
    assert project.pisub("wait", run_id).code == 0
    assert project.pisub("result", run_id).out == "decided: yes\n"
