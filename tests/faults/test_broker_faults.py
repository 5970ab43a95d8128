"""The broker under peers that stop, break off, or try what they may not."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from pisub.launch import find_broker, program
from pisub.process import identify, own_identity, send_signal
from pisub.protocol.delivery import Kind, Priority
from pisub.protocol.session import (
    Authority,
    Claim,
    Failure,
    FindRole,
    HeldRole,
    Hello,
    PeerKind,
    Status,
    Subscribe,
    Watch,
)
from tests.support.broker_process import RawClient, Rig, rig
from tests.support.eventually import eventually

#: A client in a process of its own: runs lines of Python given on its standard input, answers with their results.
PEER = """
import sys, zmq
from pisub.protocol.delivery import *
from pisub.protocol.session import *
from tests.support.broker_process import RawClient
context = zmq.Context()
client = RawClient(context, sys.argv[1])
for line in sys.stdin:
    print(repr(eval(line)), flush=True)
"""


class Peer:
    """A client in another process, driven line by line."""

    def __init__(self, address: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PEER, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def run(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        return self.process.stdout.readline().strip()

    def signal(self, number: signal.Signals) -> None:
        identity = identify(self.process.pid)
        assert identity is not None
        assert send_signal(identity, number)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path) as made:
        yield made


@pytest.fixture
def peer(broker: Rig) -> Iterator[Peer]:
    made = Peer(broker.start().address)
    yield made
    made.close()


def round_trip_s(client: RawClient) -> float:
    begin = time.perf_counter()
    client.control(FindRole(role="host"))
    return time.perf_counter() - begin


def broker_memory_kib(broker: Rig) -> int:
    status = Path(f"/proc/{broker.start().process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


def test_a_stopped_subscriber_costs_no_memory_and_gets_every_terminal_message(broker: Rig, peer: Peer) -> None:
    """What it costs the others in time is measured by ``python -m benchmarks chaos slow``: a ratio, not a limit."""
    peer.run("client.hello('slow', subscriptions=(Subscription(topic='t'),))")
    publisher, other = broker.client("publisher"), broker.client("other")
    other.control(Subscribe(topic="t"))
    memory = broker_memory_kib(broker)
    peer.signal(signal.SIGSTOP)
    rounds, updates = 500, 200
    for number in range(rounds):
        for _ in range(updates):
            publisher.send(Kind.PUBLISH, b"x" * 300, topic="t", priority=Priority.DROPPABLE)
        publisher.send(Kind.PUBLISH, str(number).encode(), topic="t", priority=Priority.TERMINAL)
        while other.receive()[2] != str(number).encode():
            pass
    assert broker_memory_kib(broker) - memory < 32 * 1024
    counters = publisher.control(Status()).counters
    assert (counters["suspended_now"], counters.get("cut_off", 0)) == (1, 0)
    peer.signal(signal.SIGCONT)
    peer.run("globals().update(stamps=[], got=[])")
    peer.run(
        "globals().update(take=lambda: (lambda m: (stamps.append(m[0]), got.append(m[2]), m[2])[2])(client.receive()))"
    )
    assert peer.run(f"[None for _ in iter(take, b'{rounds - 1}')] and None") == "None"
    terminal = peer.run("[int(m) for m in got if len(m) < 4]")
    assert terminal == repr(list(range(rounds)))
    assert int(peer.run("sum(s.dropped for s in stamps) + len(got)")) == rounds * (updates + 1)
    assert int(peer.run("sum(s.dropped for s in stamps)")) > rounds * updates * 0.8


def test_at_the_bound_a_stopped_peer_is_disconnected_keeps_its_role_and_resumes_with_resync(
    broker: Rig, peer: Peer
) -> None:
    peer.run("client.hello('slow')")
    peer.run("client.control(Claim(role='host'))")
    sender = broker.client("sender")
    peer.signal(signal.SIGSTOP)
    sender.send(Kind.TELL, b"kept", to="slow", priority=Priority.TERMINAL)
    sent = 0
    while not sender.control(Status()).counters.get("cut_off"):
        sender.send(Kind.TELL, b"x" * 60_000, to="slow")
        sent += 1
        assert sent < 2_000
    [slow] = [each for each in sender.control(Status()).peers if each.address == "slow"]
    assert (slow.is_connected, slow.queued_bytes < 8 * 2**20) == (False, True)
    eventually(lambda: sender.control(Status()).counters["connections"] == 1, what="the connection is broken")
    assert sender.control(FindRole(role="host")).address == "slow"
    peer.signal(signal.SIGCONT)
    peer.run("globals().update(client=RawClient(context, sys.argv[1]))")
    held = "(HeldRole(role='host', generation=1),)"
    assert peer.run(f"(lambda w: (w.resync, w.roles[0].generation))(client.hello('slow', roles={held}))") == "(True, 1)"
    sender.send(Kind.TELL, b"again", to="role:host")
    bodies = peer.run("[client.receive()[2] for _ in range(1)]")
    assert bodies in ("[b'kept']", "[b'again']")


def test_a_broken_connection_of_a_living_process_is_resumed_with_what_came_meanwhile(broker: Rig, peer: Peer) -> None:
    peer.run("client.hello('b')")
    a = broker.client("a")
    a.control(Watch(address="b"))
    number = a.send(Kind.CALL, b"?", to="b")
    assert peer.run("client.receive()[2]") == "b'?'"
    peer.run("client.socket.close(0)")
    eventually(lambda: a.control(Status()).counters.get("lost_connections") == 1, what="the loss is noticed")
    a.send(Kind.TELL, b"meanwhile", to="b")
    peer.run("globals().update(client=RawClient(context, sys.argv[1]))")
    assert peer.run("client.hello('b').resync") == "True"
    assert peer.run("client.receive()[2]") == "b'meanwhile'"
    peer.run(f"client.send(7, b'=', to='a', correlation_id={number})")
    assert a.receive()[1].kind == Kind.ROUTED, "the call may be lost: send it again"
    assert a.receive()[2] == b"="


def test_a_child_of_a_runner_has_a_childs_rights_whatever_it_says(broker: Rig, peer: Peer) -> None:
    host = broker.client("host")
    host.control(Claim(role="host", scope="s"))
    peer.run("client.hello('run:r', kind=PeerKind.RUNNER, session='s')")
    script = """
import os, sys, zmq
from pisub.protocol.delivery import *
from pisub.protocol.session import *
from tests.support.broker_process import RawClient
context = zmq.Context()
client = RawClient(context, sys.argv[1])
welcome = client.hello('evil', kind=PeerKind.HOST, authority=255, roles=(HeldRole(role='host', scope='s'),))
codes = [client.control(each).code for each in (Claim(role='x'), Release(role='host', scope='s'), Shutdown())]
print(welcome.authority, welcome.roles, codes)
"""
    line = (
        "__import__('subprocess').run([sys.executable, '-c', "
        f"{script!r}, sys.argv[1]], capture_output=True, text=True).stdout"
    )
    assert peer.run(line) == repr(f"{Authority.CHILD} () ['refused', 'refused', 'refused']\n")
    assert host.control(FindRole(role="host", scope="s")).address == "host"


def test_a_flood_of_garbage_from_one_connection_changes_nothing_for_others(broker: Rig) -> None:
    good, bad = broker.client("good"), broker.client(options={"RCVTIMEO": 100})
    for number in range(5000):
        bad.socket.send(bytes([number % 251]) * (number % 100))
    assert good.control(FindRole(role="host")).address == ""
    assert good.control(Status()).counters["refused_protocol_error"] > 0


def test_at_the_descriptor_limit_new_peers_are_told_so_and_the_others_go_on(broker: Rig) -> None:
    broker.directory.mkdir(mode=0o700)
    start = program("broker")
    with subprocess.Popen(
        ["sh", "-c", 'ulimit -n 100; exec "$@"', "sh", *start.argv, "--runtime-dir", str(broker.directory)],
        env={"PATH": "/usr/bin:/bin", **start.environ},
        stderr=subprocess.DEVNULL,
    ) as process:
        eventually(lambda: find_broker(broker.settings), what="the broker serves")
        first = broker.client("first")
        told = [broker.client() for _ in range(60)]
        for number, client in enumerate(told):
            client.send(
                Kind.HELLO,
                Hello(
                    wire_versions=(1,),
                    kind=PeerKind.CLIENT,
                    address=f"c{number}",
                    incarnation=1,
                    process=own_identity(),
                ),
            )
        answers = [client.answer() for client in told]
        refused = [each.code for each in answers if isinstance(each, Failure)]
        assert 0 < len(refused) < 60
        assert set(refused) == {"too_many_peers"}
        assert first.control(FindRole(role="host")).address == ""
        process.terminate()


def test_many_clients_that_connect_and_leave_leave_no_trace(broker: Rig) -> None:
    watcher = broker.client("watcher")
    with zmq.Context() as context:
        for number in range(50):
            client = RawClient(context, broker.start().address)
            client.hello(f"c{number}", roles=(HeldRole(role=f"r{number}", generation=1),))
            client.send(Kind.GOODBYE)
            client.socket.close(1000)

    def traces() -> tuple[int, int]:
        counters = watcher.control(Status()).counters
        return counters["peers"], counters["connections"]

    eventually(lambda: traces() == (1, 1), what="only the watcher is left")
