"""A child with a shell, the command line and the wire, that wants what is not its own: all of it is refused, counted,
and changes nothing. (What it could do to files as the same user is not the broker's to stop, and is said in the docs.)
"""

from __future__ import annotations

import asyncio
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import pisub
from pisub.cli.exits import Exit
from pisub.client.bus import Bus
from pisub.launch import find_broker
from pisub.protocol.runs import RunState
from pisub.protocol.session import Authority, FindRole, PeerKind, RoleHolder, Status, StatusReport
from pisub.record.layout import Layout
from pisub.record.questions import list_open_asks
from pisub.record.reader import read_run
from tests.support.eventually import eventually_async
from tests.support.project import Project, make_project

#: What the child does: its report is a JSON object on standard output. Its task is {"run", "ask", "project"}.
HOSTILE = '''
import json, os, subprocess, sys
import zmq
sys.path.insert(0, TREE)
from pisub.config import load_settings
from pisub.launch import find_broker
from pisub.process import own_identity
from pisub.protocol.checkpoint import *
from pisub.protocol.delivery import *
from pisub.protocol.runs import *
from pisub.protocol.session import *
from pisub.protocol import codec
from pisub.protocol.version import WIRE_VERSIONS
from tests.support.broker_process import RawClient

goal = json.loads(sys.stdin.read())
report = {}
endpoint = find_broker(load_settings()).address


def ask(raw, request):
    number = raw.send(Kind.CONTROL, request)
    while True:
        _, header, body = raw.receive()
        if header.correlation_id == number:
            return codec.decode(body, BrokerMessage)


def by_wire():
    context = zmq.Context()
    raw = RawClient(context, endpoint)
    held = (HeldRole(role="host", scope="s", generation=1),)
    wanted = (Subscription(topic=TRACE_TOPIC), Subscription(topic="", is_prefix=True, scope="other"))
    wishes = dict(kind=PeerKind.HOST, authority=255, session="s", roles=held, subscriptions=wanted)
    welcome = raw.hello("evil-%d" % os.getpid(), **wishes)
    found = {"authority": welcome.authority, "roles": [each.role for each in welcome.roles]}
    requests = [Claim(role="host", scope="s"), Claim(role="x", wait=True), Release(role="host", scope="s"), Shutdown(),
                Subscribe(topic=TRACE_TOPIC), Subscribe(topic="t", scope="other")]
    found["controls"] = [getattr(ask(raw, each), "code", "done") for each in requests]
    forged = AskRequest(ask_id=goal["ask"], run_id=goal["run"], agent="ask", questions=(Question("Forged?"),))
    number = raw.send(Kind.CALL, forged, to="role:host", scope="s")
    while True:
        stamp, header, body = raw.receive()
        if header.correlation_id == number and header.kind != Kind.ROUTED:
            found["forged ask"] = codec.decode(body, Failure).code
            break
    raw.send(Kind.TELL, AnswerPosted(ask_id=goal["ask"], run_id=goal["run"], number=1), to="role:host", scope="s")
    raw.send(Kind.TELL, AskCancelled(ask_id=goal["ask"], reason="forged"), to="role:host", scope="s")
    raw.send(Kind.REPLY, AskResult(status="ok"), to="run:" + goal["run"], correlation_id=1)
    over = AsyncComplete(run_id=goal["run"], session_id="s", agent="ask", state="complete")
    raw.send(Kind.PUBLISH, over, topic=ASYNC_COMPLETE_TOPIC, scope="s")
    raw.send(Kind.PUBLISH, over, topic=TRACE_TOPIC)
    found["still there"] = ask(raw, FindRole(role="host", scope="s")).address
    raw.send(Kind.GOODBYE)
    raw.socket.close(500)
    twice = []
    victim, client = (PeerKind.RUNNER, "run:" + goal["run"]), PeerKind.CLIENT
    for kind, address in (victim, (client, "run:x"), (client, goal["host"])):
        other = RawClient(context, endpoint)
        me = own_identity()
        hello = Hello(wire_versions=WIRE_VERSIONS, kind=kind, address=address, incarnation=2**62, process=me)
        other.send(Kind.HELLO, hello)
        twice.append(getattr(other.answer(), "code", "welcome"))
        other.socket.close(0)
    found["names"] = twice
    context.term()
    return found


def by_command_line():
    commands = [["stop", goal["run"]], ["stop", goal["run"], "--tree"], ["steer", goal["run"], "turn"],
                ["interrupt", goal["run"]], ["resume", goal["run"], "go on"], ["caps", "--grant", "1"],
                ["answer", goal["question"], "left"], ["decline", goal["question"]],
                ["host", "--session", "s", "--answers", goal["answers"]], ["broker", "stop"], ["broker", "trace"],
                ["trust", goal["project"], "--yes"]]
    return [subprocess.run([sys.executable, "-m", "pisub", *each], stdin=subprocess.DEVNULL, capture_output=True,
                           cwd=goal["project"], timeout=60).returncode for each in commands]


def escaped(attempt):
    """Run it in a grandchild of another session whose parent is gone, as a daemon would."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        middle = os.getpid()
        if os.fork() == 0:
            os.close(reader)
            while os.getppid() == middle:
                os.sched_yield()
            try:
                text = json.dumps(attempt())
            except BaseException as error:
                text = json.dumps(repr(error))
            os.write(writer, text.encode())
            os._exit(0)
        os._exit(0)
    os.close(writer)
    os.wait()
    with os.fdopen(reader, "rb") as pipe:
        return json.loads(pipe.read())


report["wire"] = by_wire()
report["commands"] = by_command_line()
report["escaped wire"] = escaped(by_wire)
report["escaped commands"] = escaped(by_command_line)
print(json.dumps(report))
'''


class Patient:
    """A human with a dialog open."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.go = asyncio.Event()

    async def select(self, title: str, options: Sequence[str], context: pisub.DialogContext) -> str | None:
        return await self.input(title, "", context)

    async def input(self, title: str, placeholder: str, context: pisub.DialogContext) -> str | None:
        self.shown.append(title)
        await self.go.wait()
        return "right" if title == "Which?" else "because"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = make_project(tmp_path / "project", is_trusted=False)
    tree = str(Path(__file__).parents[2])
    (made.root / "hostile.py").write_text(HOSTILE.replace("TREE", repr(tree)))
    front = f"""\
        ---
        name: hostile
        description: Wants what is not its own.
        runner:
          type: external-cli
          argv: ["{sys.executable}", "{made.root}/hostile.py"]
        ---
        """
    (made.root / ".pisub" / "agents" / "hostile.md").write_text(textwrap.dedent(front))
    (made.root / "answers.yaml").write_text("- left\n- because\n")
    from pisub.agents.trust import trust  # noqa: PLC0415

    trust(made.settings, made.root)
    return made


def test_whatever_a_child_tries_is_refused_and_counted_and_changes_nothing(project: Project) -> None:
    settings = project.settings
    layout = Layout.of(settings)

    async def figures() -> tuple[StatusReport, RoleHolder]:
        async with await Bus.connect(settings, kind=PeerKind.OBSERVER) as bus:
            holder = await bus.control(FindRole(role="host", scope="s"), RoleHolder)
            return await bus.control(Status(), StatusReport), holder

    async def main() -> None:
        human = Patient()
        async with pisub.host("s", human) as host:
            victim = await host.spawn("ask", "x", project.root)
            await eventually_async(lambda: human.shown == ["Which?"], what="the other run asks")
            [ask] = list_open_asks(layout)
            before, holder = await figures()
            goal = {
                "run": victim.id,
                "ask": ask.record.ask_id,
                "question": f"{ask.record.ask_id}.1",
                "host": host.client.bus.address,
                "project": str(project.root),
                "answers": str(project.root / "answers.yaml"),
            }
            child = await host.spawn("hostile", msgspec.json.encode(goal).decode(), project.root)
            report: dict[str, Any] = msgspec.json.decode(await child.text())
            after, holder_after = await figures()

            refused = {
                "authority": Authority.CHILD,
                "roles": [],
                "controls": ["refused"] * 6,
                "forged ask": "refused",
                "still there": host.client.bus.address,
                "names": ["identity_in_use", "refused", "identity_in_use"],
            }
            assert report["wire"] == refused
            assert report["escaped wire"] == refused
            assert report["commands"] == [Exit.REFUSED] * 12
            assert report["escaped commands"] == [Exit.REFUSED] * 12

            assert (after.epoch, holder_after) == (before.epoch, holder), "the same broker, the same host"
            counted = after.counters["refused_refused"] - before.counters.get("refused_refused", 0)
            # Twice: six requests, a role in the Hello, a forged trace, a client by a runner's name, three to the host.
            assert counted == 2 * (6 + 1 + 1 + 1 + 3)
            assert after.counters["refused_asks"] == 2 * 3
            assert after.counters["refused_identity_in_use"] == 2 * 2
            assert after.counters["unmatched_replies"] >= 2
            assert read_run(layout, victim.id).state == RunState.RUNNING
            assert [each.record.ask_id for each in list_open_asks(layout)] == [goal["ask"]]
            assert human.shown == ["Which?"], "no dialog was closed, none was added"
            human.go.set()
            assert await victim.text() == "ok: ('right', 'because')"
        assert find_broker(settings) is not None

    asyncio.run(main())
