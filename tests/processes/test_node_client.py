"""The client of ``integrations/node``, written from docs/protocol.md, with the real broker and a Python peer."""

import asyncio
import contextlib
import functools
import json
import signal
import subprocess
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pisub.client.bus import Bus, Incoming, Sender
from pisub.config import Settings
from pisub.errors import RemoteError, RoleTakenError
from pisub.launch import find_broker
from pisub.process import send_signal
from pisub.protocol.base import Message
from pisub.protocol.checkpoint import (
    HOST_READY_TOPIC,
    Answer,
    AskCancelled,
    AskRequest,
    AskResult,
    AskStatus,
    HostReady,
    Question,
)
from pisub.protocol.session import Authority, FindRole, GoneReason, PeerKind, RoleHolder, Terminated
from tests.support.bus_peer import Echo, Said, Say
from tests.support.eventually import HANG_S, eventually_async
from tests.support.node_peer import NodeError, NodePeer, prepare, require_node

Start = Callable[..., AbstractAsyncContextManager[NodePeer]]
RUN = "0" * 26


@pytest.fixture(scope="session")
def client_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    node = require_node()
    folder = tmp_path_factory.mktemp("node")
    try:
        prepare(node, folder, tmp_path_factory.getbasetemp() / "npm")
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"needs the npm packages of integrations/node (make node): {error}")
    return folder


@pytest.fixture
def start(client_folder: Path) -> Start:
    node = require_node()
    return functools.partial(NodePeer.run, node, client_folder)


@contextlib.asynccontextmanager
async def connect(settings: Settings, kind: PeerKind = PeerKind.CLIENT) -> AsyncGenerator[Bus]:
    async with await Bus.connect(settings, kind=kind, address="python:1") as bus:
        yield bus


def say(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "test:say", "text": text, **more}


def test_without_a_broker_it_says_how_to_start_one(start: Start) -> None:
    async def main() -> None:
        with pytest.raises(NodeError) as caught:
            async with start(waitMs=50):
                pass
        assert caught.value.code == "broker_unavailable"
        assert "pisub broker start" in caught.value.message

    asyncio.run(main())


def test_its_hello_names_its_own_process_and_it_may_do_what_its_user_may(settings: Settings, start: Start) -> None:
    async def main() -> None:
        async with connect(settings), start(address="node:1", session="s") as node:
            (own,) = [each for each in (await node.do("status"))["peers"] if each["address"] == "node:1"]
            assert own == {
                "address": "node:1",
                "kind": "client",
                "pid": node.process.pid,
                "session": "s",
                "authority": Authority.OWNER,
            }

    asyncio.run(main())


def test_an_address_that_is_left_out_is_given_by_the_broker_and_kept_over_a_reconnect(
    settings: Settings, start: Start
) -> None:
    async def main() -> None:
        async with connect(settings) as bus, start() as node:
            (own,) = [each for each in (await node.do("status"))["peers"] if each["pid"] == node.process.pid]
            kill_broker(settings)
            assert [await node.event("state") for _ in range(3)] == ["disconnected", "connected", "resync"]
            await eventually_async(lambda: bus.is_connected)
            bus.tell(own["address"], Say(text="still there"))
            assert await node.event("told") == say("still there")

    asyncio.run(main())


def test_an_address_of_another_live_process_is_refused(settings: Settings, start: Start) -> None:
    async def main() -> None:
        async with connect(settings):
            with pytest.raises(NodeError) as caught:
                async with start(address="python:1"):
                    pass
            assert caught.value.code == "identity_in_use"

    asyncio.run(main())


def test_calls_go_both_ways_and_carry_answers_and_errors(settings: Settings, start: Start) -> None:
    async def main() -> None:
        async with connect(settings) as bus, start(address="node:1") as node:
            Echo(bus)
            await bus.claim("echo")
            for to in ("python:1", "role:echo"):
                assert (await node.do("call", to=to, body=say(to)))["text"] == to
            answer = await bus.call("node:1", Say(text="ping"), Said, timeout_s=HANG_S)
            assert answer == Said(text="ping to python:1", times=1)
            with pytest.raises(RemoteError) as refused:
                await bus.call("node:1", Say(text="refuse"), Said, timeout_s=HANG_S)
            assert (refused.value.code, refused.value.field) == ("no_such_thing", "text")
            for to, code in (("node:nobody", "not_delivered"), ("role:nobody", "not_delivered")):
                with pytest.raises(NodeError) as failed:
                    await node.do("call", to=to, body=say("x"))
                assert failed.value.code == code
            with pytest.raises(NodeError) as unknown:
                await node.do("call", to="python:1", body={"type": "test:unheard-of"})
            assert unknown.value.code == "not_served"
            with pytest.raises(NodeError) as late:
                await node.do("call", to="python:1", body=say("held", isHeld=True), timeoutMs=50)
            assert late.value.code == "call_timeout"
            with pytest.raises(NodeError) as large:
                await node.do("call", to="python:1", body=say("x" * 65_536))
            assert large.value.code == "too_large"

    asyncio.run(main())


def test_a_callee_that_goodbyes_with_the_call_open_leaves_its_outcome_unknown(settings: Settings, start: Start) -> None:
    async def main() -> None:
        async with connect(settings) as bus, start() as node:
            Echo(bus)
            call = node.start("call", to="python:1", body=say("held", isHeld=True))
            (own,) = [each for each in (await node.do("status"))["peers"] if each["pid"] == node.process.pid]
            assert own["openCalls"] == 1
            await bus.close()
            with pytest.raises(NodeError) as failed:
                await call
            assert failed.value.code == "outcome_unknown"

    asyncio.run(main())


def test_it_publishes_and_subscribes_exactly_by_prefix_and_by_scope(settings: Settings, start: Start) -> None:
    async def main() -> None:
        async with connect(settings) as bus, start(address="node:1") as node:
            got: list[tuple[str, str, str]] = []

            def note(message: Incoming) -> None:
                got.append((message.topic, message.scope, message.decode(Say).text))

            await bus.subscribe("node:", note, is_prefix=True, scope="s")
            await node.do("subscribe", name="exact", topic="a:b")
            await node.do("subscribe", name="prefix", topic="a:", isPrefix=True)
            await node.do("subscribe", name="scoped", topic="a:", isPrefix=True, scope="s")
            for topic, scope in (("a:b", ""), ("a:c", "s"), ("b:a", "s"), ("a:", "t")):
                bus.publish(topic, Say(text=f"{topic} {scope}"), scope=scope)
            bus.publish("c", Say(text="addressed"), to="node:1")
            for topic, scope in (("node:1", "s"), ("node:2", ""), ("other", "s"), ("node:3", "s")):
                await node.do("publish", topic=topic, scope=scope, body=say(topic))
            assert await node.event("told") == say("addressed")
            seen = [(await node.event("exact"))["topic"], (await node.event("scoped"))["topic"]]
            seen += [(await node.event("prefix"))["topic"] for _ in range(3)]
            assert seen == ["a:b", "a:c", "a:b", "a:c", "a:"]
            assert [node.unseen(name) for name in ("exact", "scoped", "prefix")] == [0, 0, 0]
            await eventually_async(lambda: len(got) == 2)
            assert got == [("node:1", "s", "node:1"), ("node:3", "s", "node:3")]

    asyncio.run(main())


class LargeSay(Message, frozen=True, kw_only=True, tag="test:say"):
    """A ``Say`` that may go by a file."""

    may_be_large: ClassVar[bool] = True

    text: str


def test_a_body_that_goes_by_a_file_arrives_like_any_other(settings: Settings, start: Start) -> None:
    async def main() -> None:
        async with connect(settings) as bus, start(address="node:1") as node:
            text = "ü" * 100_000
            bus.tell("node:1", LargeSay(text=text))
            assert (await node.event("told"))["text"] == text

    asyncio.run(main())


def test_an_integer_beyond_53_bits_arrives_as_it_was_sent(settings: Settings, start: Start) -> None:
    async def main() -> None:
        async with connect(settings) as bus, start(address="node:1") as node:
            gone: list[Terminated] = []
            await bus.watch("node:1", gone.append)
            await node.do("watch", address="python:1")
            await node.leave()
            await eventually_async(lambda: gone)
            assert gone[0].incarnation > 2**53
            async with start(address="node:1") as other:
                await other.do("watch", address="python:1")
                await bus.close()
                assert await other.event("gone") == {
                    "address": "python:1",
                    "incarnation": str(bus.incarnation),
                    "reason": "goodbye",
                }

    asyncio.run(main())


def test_a_watch_tells_once_of_an_end_and_at_once_of_an_absence(settings: Settings, start: Start) -> None:
    async def main() -> None:
        async with connect(settings) as bus, start(address="node:1") as node:
            await eventually_async(lambda: bus.is_connected)
            await node.do("watch", address="nobody")
            absent = await node.event("gone")
            assert absent == {"address": "nobody", "incarnation": 0, "reason": GoneReason.UNKNOWN}
            gone: list[Terminated] = []
            await bus.watch("node:1", gone.append)
            node.process.kill()
            await eventually_async(lambda: gone)
            assert (gone[0].address, gone[0].reason) == ("node:1", GoneReason.EXITED)

    asyncio.run(main())


def test_roles_are_claimed_found_waited_for_and_handed_on(settings: Settings, start: Start) -> None:
    async def main() -> None:
        async with connect(settings) as bus, start(address="node:1") as node:
            await bus.claim("r", "s")
            with pytest.raises(NodeError) as taken:
                await node.do("claim", role="r", scope="s")
            assert (taken.value.code, taken.value.holder) == ("role_taken", "python:1")
            waiting = await node.do("claim", role="r", scope="s", wait=True)
            assert (waiting["generation"], waiting["position"], waiting["holder"]) == (0, 1, "python:1")
            assert (await node.do("findRole", role="r", scope="s"))["address"] == "python:1"
            await bus.release("r", "s")
            granted = await node.event("role")
            held = await bus.control(FindRole(role="r", scope="s"), RoleHolder)
            assert held == RoleHolder(role="r", scope="s", address="node:1", generation=granted["generation"])
            with pytest.raises(RoleTakenError):
                await bus.claim("r", "s")
            assert (await node.do("tell", to="python:1", body=say("fenced"), fenceOf=["r", "s"])) is None
            await node.do("release", role="r", scope="s")
            assert (await node.do("findRole", role="r", scope="s")).get("address", "") == ""

    asyncio.run(main())


def test_a_fenced_call_is_refused_from_who_no_longer_holds_the_role(settings: Settings, start: Start) -> None:
    async def main() -> None:
        async with connect(settings) as bus, start(address="node:1") as node:
            Echo(bus)
            await node.do("claim", role="r", scope="s")
            assert (await node.do("call", to="python:1", body=say("mine"), fenceOf=["r", "s"]))["text"] == "mine"
            await node.do("release", role="r", scope="s")
            with pytest.raises(NodeError) as stale:
                await node.do("call", to="python:1", body=say("mine"), fenceOf=["r", "s"])
            assert stale.value.code == "stale_generation"

    asyncio.run(main())


def test_as_a_session_s_host_it_answers_a_child_s_ask(settings: Settings, start: Start) -> None:
    async def main() -> None:
        async with connect(settings) as bus, start(address="node:1", kind="host") as node:
            ready: list[HostReady] = []
            await bus.subscribe(HOST_READY_TOPIC, lambda each: ready.append(each.decode(HostReady)), scope="s")
            await node.do("host", session="s", answers={"Which?": "two", "Name?": "Ada", "Wrong?": "three"})
            await eventually_async(lambda: ready == [HostReady(session_id="s")])

            async def ask(
                *questions: Question, ask_id: str = "1" * 26, whole_ms: int | None = None, each_ms: int | None = None
            ) -> AskResult:
                request = AskRequest(
                    ask_id=ask_id,
                    run_id=RUN,
                    agent="a",
                    questions=questions,
                    timeout_ms=whole_ms,
                    question_timeout_ms=each_ms,
                )
                return await bus.call("role:host", request, AskResult, scope="s", timeout_s=HANG_S, idempotent=True)

            choice, name = Question("Which?", ("one", "two")), Question("Name?")
            answered = await ask(choice, name)
            assert answered.status is AskStatus.OK
            assert answered.values == ("two", "Ada")
            first = answered.answers[0]
            assert first == Answer(value="two", by="node:1", at=first.at if first else 0)
            assert first is not None
            assert first.at > 1_600_000_000_000
            expired = await ask(name, Question("Silence?"), name, each_ms=20)
            assert (expired.status, expired.values) == (AskStatus.TIMEOUT_OR_CANCELLED, ("Ada", None, None))
            assert (await ask(Question("Silence?"), whole_ms=20)).status is AskStatus.TIMEOUT
            assert (await ask(Question("Wrong?", ("one", "two")))).status is AskStatus.ERROR
            open_ask = asyncio.create_task(ask(Question("Open?"), ask_id="2" * 26))
            await eventually_async(lambda: node.unseen("dialog") == 7)
            bus.tell("role:host", AskCancelled(ask_id="2" * 26, reason="no longer"), scope="s")
            assert await open_ask == AskResult(
                status=AskStatus.CANCELLED, answers=(None,), reason="no longer", ask_id="2" * 26
            )

    asyncio.run(main())


def test_it_asks_a_session_s_host_itself(settings: Settings, start: Start) -> None:
    async def main() -> None:
        async with connect(settings, kind=PeerKind.HOST) as bus, start(address="node:1") as node:
            asked: list[tuple[AskRequest, str]] = []

            def answer(request: AskRequest, sender: Sender) -> AskResult:
                asked.append((request, sender.address))
                return AskResult(
                    status=AskStatus.OK, answers=(Answer(value="two", by=bus.address, at=1),), ask_id=request.ask_id
                )

            bus.serve(AskRequest, answer)
            await bus.claim("host", "s")
            request = {"askId": "1" * 26, "runId": RUN, "agent": "node", "questions": [
                {"text": "Which?", "options": ["one", "two"]}
            ]}  # fmt: skip
            response = await node.do("ask", session="s", request=request)
            assert response == {
                "type": "checkpoint-bridge:response",
                "status": "ok",
                "answers": [{"value": "two", "by": "python:1", "at": 1}],
                "askId": "1" * 26,
            }
            ((got, sender),) = asked
            assert got.questions == (Question("Which?", ("one", "two")),)
            assert got.asked_at > 1_600_000_000_000
            assert sender == "node:1"

    asyncio.run(main())


def kill_broker(settings: Settings) -> None:
    info = find_broker(settings)
    assert info is not None
    assert send_signal(info.process, signal.SIGKILL)


def test_open_calls_both_ways_outlive_a_killed_broker_and_are_handled_once(settings: Settings, start: Start) -> None:
    async def main() -> None:
        async with connect(settings) as bus, start(address="node:1") as node:
            echo = Echo(bus)
            await bus.claim("echo")
            await node.do("claim", role="host", scope="s")
            await node.do("subscribe", name="news", topic="news")
            await bus.call("node:1", Say(text="known"), Said, timeout_s=HANG_S)  # which life of it there is, is known
            theirs = [
                node.start("call", to="role:echo", body=say(f"node {each}", isHeld=True), timeoutMs=60_000)
                for each in range(20)
            ]
            ours = [
                asyncio.create_task(bus.call("node:1", Say(text=f"py {each}", is_held=True), Said, timeout_s=60))
                for each in range(20)
            ]
            await eventually_async(lambda: echo.waiting == 20 and node.unseen("held") == 20, what="all are held")
            kill_broker(settings)
            # The Python peer answers on its own when it is back; the Node peer is told to.
            assert [await node.event("state") for _ in range(3)] == ["disconnected", "connected", "resync"]
            await node.do("letGo")
            async with asyncio.timeout(HANG_S):
                answers = await asyncio.gather(*theirs)
                replies = await asyncio.gather(*ours)
            assert [each["times"] for each in answers] == [1] * 20
            assert replies == [Said(text=f"py {each} to python:1", times=1) for each in range(20)]
            assert set((await node.do("handled")).values()) == {1}
            assert set(echo.times.values()) == {1}
            assert (await node.event("role"))["role"] == "host"
            held = await bus.control(FindRole(role="host", scope="s"), RoleHolder)
            assert held.address == "node:1"
            bus.publish("news", Say(text="still subscribed"))
            assert (await node.event("news"))["body"] == say("still subscribed")

    asyncio.run(main())


def test_the_package_names_its_dependencies_and_nothing_runs_at_their_installation() -> None:
    package = json.loads((Path(__file__).parents[2] / "integrations/node/package.json").read_text(encoding="utf-8"))
    assert set(package["dependencies"]) == {"zeromq", "@msgpack/msgpack"}
    assert "scripts" not in package
