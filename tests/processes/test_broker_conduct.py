"""How a broker behaves as a process, and towards peers that behave badly or oddly."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pisub.client.bus import Bus
from pisub.config import Settings
from pisub.errors import RefusedError
from pisub.launch import BrokerInfo, ensure_broker, find_broker, log_path
from pisub.process import ProcessStat
from pisub.protocol import bundle, codec
from pisub.protocol.delivery import Header, Kind
from pisub.protocol.session import Claim, Done, FindRole, GoneReason, PeerKind, RoleHolder, Status, Terminated, Watch
from tests.support.broker_process import Rig, rig
from tests.support.bus_peer import Echo, Said, Say
from tests.support.crash_replay import load, replay
from tests.support.eventually import eventually, eventually_async
from tests.support.project import make_project

#: What a daemon may be given (and what Python sets for itself).
ALLOWED = ("PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path) as made:
        yield made


def test_a_daemon_has_nothing_of_its_starter_s(broker: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "of the starter's")
    monkeypatch.setenv("PISUB_RUN_ID", "whoever starts it")
    before = os.umask(0)
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    try:
        process = Path(f"/proc/{broker.start().process.pid}")
    finally:
        os.umask(before)
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        parent, group, session = int(fields[1]), int(fields[2]), int(fields[3])
        assert session == group == int(process.name), "it leads a session: so a runner knows that it is no child's"
        assert parent != os.getpid()
        status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines())
        assert (status["Umask"], status["SigBlk"]) == ("0077", "0" * 16)
        assert (process / "cwd").readlink() == broker.directory
        fds = {int(each.name): os.fsdecode(each.readlink()) for each in (process / "fd").iterdir()}
        log = str(log_path(broker.directory, "broker"))
        assert (fds.pop(0), fds.pop(1), fds.pop(2)) == ("/dev/null", log, log)
        own = {str(broker.directory / name) for name in ("broker.lock", "broker.sock")}
        assert {each for each in fds.values() if each.startswith("/")} <= own | {"/dev/urandom"}
        assert Path(f"/proc/self/fd/{writer}").readlink() not in [Path(each) for each in fds.values()]
        names = {line.partition(b"=")[0].decode() for line in (process / "environ").read_bytes().split(b"\0") if line}
        strange = {each for each in names if each not in ALLOWED and not each.startswith(("LC_", "XDG_", "PISUB_"))}
        assert strange <= {"PYTHONPATH"}, "where our modules would not be found otherwise"
        assert "PISUB_RUN_ID" not in names
    finally:
        os.close(reader)
        os.close(writer)


def test_a_pipe_behind_a_command_that_started_a_broker_ends_with_the_command(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    pisub = f"{sys.executable} -m pisub"
    script = f"{pisub} broker start | cat; {pisub} run echo hello -d | cat; {pisub} ps | cat"
    done = subprocess.run(["sh", "-c", script], cwd=project.root, capture_output=True, timeout=60, check=True)
    assert done.stdout.startswith(b"broker runs: pid ")
    assert find_broker(project.settings) is not None, "it goes on, and has nothing of the pipes"


def test_a_flood_of_bad_frames_is_counted_and_logged_by_no_line_of_its_own(broker: Rig) -> None:
    good, bad = broker.client("good"), broker.client("bad")
    count, chunk = 100_000, 500
    for start in range(0, count, chunk):
        for number in range(start, start + chunk):
            bad.socket.send(bytes([number % 251]) * (1 + number % 30))
        assert {bad.answer().code for _ in range(chunk)} == {"protocol_error"}
    assert good.control(Status()).counters["refused_protocol_error"] == count
    lines = log_path(broker.directory, "broker").read_bytes().splitlines()
    assert [msgspec.json.decode(line)["event"] for line in lines] == ["broker_started"]
    assert good.control(FindRole(role="host")).address == ""


def test_a_client_that_reads_bundles_gets_several_messages_in_one_and_another_does_not(broker: Rig) -> None:
    asker, reader, plain = (
        broker.client("asker"),
        broker.client("reader", capabilities=("bundles",)),
        broker.client("p"),
    )
    frames = [
        codec.pack(Header(kind=Kind.TELL, message_id=number, to=to), b"%d" % number)
        for number, to in enumerate(("reader", "p", "reader", "p", "reader"), start=1)
    ]
    asker.socket.send(bundle.join(frames))
    together = reader.receive_bundle()
    assert [(stamp.sender, header.message_id, body) for stamp, header, body in together] == [
        ("asker", 1, b"1"),
        ("asker", 3, b"3"),
        ("asker", 5, b"5"),
    ]
    assert [plain.receive()[2] for _ in range(2)] == [b"2", b"4"]


def test_a_bundle_that_does_not_add_up_is_refused_whole_and_what_follows_is_heard(broker: Rig) -> None:
    asker, reader = broker.client("asker"), broker.client("reader")
    frame = codec.pack(Header(kind=Kind.TELL, to="reader"), b"!")
    for message in (bundle.join([frame])[:-1], bundle.PRELUDE, bundle.join([frame]) + b"x"):
        asker.socket.send(message)
        assert asker.answer().code == "protocol_error"
    asker.socket.send(bundle.join([b"garbage", bundle.join([frame]), frame]))
    assert [asker.answer().code for _ in range(2)] == ["protocol_error"] * 2
    assert reader.receive()[2] == b"!"


def test_a_stranger_s_bundle_is_as_strange_as_its_frames(broker: Rig) -> None:
    stranger = broker.client()
    stranger.socket.send(bundle.join([codec.pack(Header(kind=Kind.TELL, to="x"), b"!")] * 2))
    assert [stranger.answer().code for _ in range(2)] == ["hello_first"] * 2
    assert stranger.hello("late").address == "late"


def test_stragglers_after_a_goodbye_reach_nobody_and_the_end_is_told_once(broker: Rig) -> None:
    leaver, watcher = broker.client("leaver"), broker.client("watcher")
    leaver.control(Claim(role="host"))
    assert watcher.control(Watch(address="leaver")) == Done(incarnation=1)
    leaver.send(Kind.GOODBYE)
    for _ in range(100):
        leaver.send(Kind.TELL, b"too late", to="watcher")
    leaver.send(Kind.CALL, b"too late", to="watcher")
    assert watcher.answer() == Terminated(address="leaver", incarnation=1, reason=GoneReason.GOODBYE)
    eventually(lambda: watcher.control(Status()).counters.get("after_goodbye") == 101, what="all of them are counted")
    assert watcher.control(FindRole(role="host")).address == ""


def test_two_clients_of_one_process_are_two_peers_and_end_each_by_itself(settings: Settings) -> None:
    async def main() -> None:
        gone: list[Terminated] = []
        async with await Bus.connect(settings, kind=PeerKind.CLIENT, address="one") as one:
            async with (
                await Bus.connect(settings, kind=PeerKind.CLIENT, address="two") as two,
                await Bus.connect(settings, kind=PeerKind.OBSERVER) as observer,
            ):
                Echo(one)
                Echo(two)
                await two.claim("r")
                await observer.watch("two", gone.append)
                texts = [(await observer.call(to, Say(text=to), Said, timeout_s=20)).text for to in ("one", "two")]
                assert texts == ["one", "two"]
                assert await one.call("two", Say(text="x"), Said, timeout_s=20) == Said(text="x", times=1)
                await two.close()
                await eventually_async(lambda: gone, what="its end is told")
                assert [(each.address, each.reason) for each in gone] == [("two", GoneReason.GOODBYE)]
                assert (await observer.call("one", Say(text="y"), Said, timeout_s=20)).text == "y"
            assert one.is_connected

    asyncio.run(main())


def test_a_role_is_held_for_everybody_for_a_session_and_for_a_tree_at_once(settings: Settings) -> None:
    scopes = ("", "session-1", "session-2", "01k0000000000000000000root")

    async def main() -> None:
        buses = [await Bus.connect(settings, kind=PeerKind.CLIENT, address=f"p{number}") for number in range(4)]
        asker = await Bus.connect(settings, kind=PeerKind.CLIENT)
        try:
            for bus, scope in zip(buses, scopes, strict=True):
                Echo(bus)
                assert (await bus.claim("provider", scope)).generation
            holders = [
                (await asker.control(FindRole(role="provider", scope=each), RoleHolder)).address for each in scopes
            ]
            assert holders == ["p0", "p1", "p2", "p3"]
            for scope in scopes:
                assert await asker.call("role:provider", Say(text="x"), Said, timeout_s=20, scope=scope) == Said(
                    text="x", times=1
                ), "each holder was asked once: none got another's"
            await buses[1].close()
            left = [(await asker.control(FindRole(role="provider", scope=each), RoleHolder)).address for each in scopes]
            assert left == ["p0", "", "p2", "p3"], "one scope's holder went, the others' stayed"
        finally:
            for bus in (*buses, asker):
                await bus.close()

    asyncio.run(main())


def test_a_broker_that_may_not_be_looked_at_counts_as_alive_and_no_second_is_started(
    broker: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = broker.start()

    def forbidden(_: int) -> ProcessStat | None:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr("pisub.process.read_stat", forbidden)
        assert find_broker(broker.settings) == first
        assert ensure_broker(broker.settings) == first
    events = [
        msgspec.json.decode(line)["event"] for line in log_path(broker.directory, "broker").read_bytes().splitlines()
    ]
    assert events == ["broker_started"]


def test_tcp_is_refused_with_the_sentence_that_it_comes_with_remote_launchers(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    outcome = project.pisub("broker", "start", environ={"PISUB_RUNTIME_DIR": "tcp://example.org:4711"})
    assert outcome.code == 10
    assert "remote launchers" in outcome.err
    assert not any(each.name.startswith("tcp") for each in project.root.iterdir())

    async def main() -> None:
        with pytest.raises(RefusedError, match="remote launchers"):
            await Bus.open(lambda: "tcp://127.0.0.1:4711", kind=PeerKind.CLIENT)

    asyncio.run(main())


def test_what_a_broker_says_of_itself_is_readable_by_its_user_alone(broker: Rig) -> None:
    info = broker.start()
    path = broker.directory / "broker.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert msgspec.json.decode(path.read_bytes(), type=BrokerInfo) == info


#: A broker with a bug: a publication on "boom" ends it.
BUGGY = """
import sys
from broker.__main__ import main
from broker.topics import Topics
healthy = Topics.receivers

def buggy(self, topic, scope):
    return self.no_such_table if topic == "boom" else healthy(self, topic, scope)

Topics.receivers = buggy
sys.exit(main(["--runtime-dir", sys.argv[1]]))
"""


def test_a_broker_that_dies_of_a_bug_leaves_what_led_there_and_a_test_plays_it_again(broker: Rig) -> None:
    broker.directory.mkdir(mode=0o700)
    command = [sys.executable, "-c", BUGGY, str(broker.directory)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        eventually(lambda: find_broker(broker.settings), what="the broker serves")
        client = broker.client("a")
        client.control(Claim(role="host"))
        client.send(Kind.PUBLISH, b"the last words", topic="boom")
        assert process.wait(10) != 0
    [path] = log_path(broker.directory, "broker").parent.glob("broker-crash-*.json")
    report = load(path)
    assert report.error.startswith("AttributeError")
    assert b"the last words" not in path.read_bytes()
    assert b"dGhlIGxhc3Qgd29yZH" not in path.read_bytes()
    again = replay(report)
    assert [(each.address, list(each.roles)) for each in again.state.peers.values()] == [("a", [("host", "")])]
