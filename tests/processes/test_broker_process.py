"""The broker as a process: one per directory, started by whoever comes first, gone when nobody is left."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
import zmq

from pisub.errors import BrokerUnavailableError
from pisub.launch import EXIT_ALREADY_RUNNING, ensure_broker, find_broker, log_path, program
from pisub.paths import runtime_dir
from pisub.process import Liveness, liveness, send_signal
from pisub.protocol import codec
from pisub.protocol.delivery import Header, Kind
from pisub.protocol.session import (
    Authority,
    Claim,
    Done,
    Failure,
    FindRole,
    GoneReason,
    Leaving,
    Shutdown,
    Status,
    Terminated,
    Watch,
)
from pisub.start_lock import StartLock
from tests.support.broker_process import RawClient, Rig, rig, wait_gone

ENSURE = """
import sys, pisub.launch, pisub.config, msgspec
settings = pisub.config.load_settings(runtime_dir=sys.argv[1])
info = pisub.launch.ensure_broker(settings)
print(info.process.pid, info.epoch)
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path) as made:
        yield made


def run_python(code: str, *arguments: str, **options: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, **options)  # type: ignore[call-overload,no-any-return]


def test_twenty_processes_that_start_at_once_get_exactly_one_broker(broker: Rig) -> None:
    starters = [run_python(ENSURE, str(broker.directory)) for _ in range(20)]
    answers = {starter.communicate()[0] for starter in starters}
    assert [starter.returncode for starter in starters] == [0] * 20
    info = find_broker(broker.settings)
    assert info is not None
    assert answers == {f"{info.process.pid} {info.epoch}\n".encode()}
    lines = log_path(broker.directory, "broker").read_text().splitlines()
    events = [msgspec.json.decode(line)["event"] for line in lines]
    assert events == ["broker_started"], "one of them started it, the others waited"


def test_who_waits_for_a_start_that_fails_is_told_why_and_starts_no_other(broker: Rig) -> None:
    broker.directory.mkdir(mode=0o700)
    (broker.directory / "broker.sock").write_text("not a socket")
    starters = [run_python(ENSURE, str(broker.directory), stderr=subprocess.STDOUT, text=True) for _ in range(6)]
    said = [starter.communicate()[0] for starter in starters]
    assert all("is in the way and is no socket" in each for each in said), said
    starts = log_path(broker.directory, "broker").read_text().count("broker_not_started")
    assert starts < 6


def test_a_starter_that_hangs_is_not_waited_for_for_ever(broker: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pisub.start_lock.PATIENCE_S", 0.1)
    broker.directory.mkdir(mode=0o700)
    with StartLock(broker.directory) as hanging:
        assert hanging.take()
        assert broker.start() == find_broker(broker.settings)


def test_threads_of_one_process_that_start_at_once_get_exactly_one_broker(broker: Rig) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: broker.start().epoch, range(8)))
    assert len(found) == 1


def test_a_second_broker_says_already_running_and_leaves_the_first_alone(broker: Rig) -> None:
    client = broker.client("a")
    again = subprocess.run(
        [*program("broker").argv, "--runtime-dir", str(broker.directory)], capture_output=True, check=False
    )
    assert again.returncode == EXIT_ALREADY_RUNNING
    assert client.control(FindRole(role="host")).address == ""


def test_a_users_own_broker_module_does_no_harm(broker: Rig, tmp_path: Path) -> None:
    (tmp_path / "broker.py").write_text("raise SystemExit('the wrong broker')")
    (tmp_path / "pisub").mkdir()
    starter = run_python(ENSURE, str(broker.directory), cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    starter.communicate()
    assert starter.returncode == 0
    assert find_broker(broker.settings) is not None


def test_after_kill_9_the_next_ensure_serves_again(broker: Rig) -> None:
    first = broker.start()
    assert send_signal(first.process, signal.SIGKILL)
    wait_gone(first.process)
    assert find_broker(broker.settings) is None
    second = broker.start()
    assert second.epoch != first.epoch
    assert broker.client("a").control(Status()).epoch == second.epoch


def test_files_and_directories_are_private_under_any_umask(broker: Rig) -> None:
    before = os.umask(0)
    try:
        broker.start()
    finally:
        os.umask(before)
    modes = {
        path.relative_to(broker.directory.parent): stat.S_IMODE(path.lstat().st_mode)
        for path in [broker.directory, *broker.directory.rglob("*")]
    }
    assert modes == {
        Path("rt"): 0o700,
        Path("rt/logs"): 0o700,
        Path("rt/logs/broker.log"): 0o600,
        Path("rt/broker.lock"): 0o600,
        Path("rt/broker.json"): 0o600,
        Path("rt/broker.sock"): 0o600,
    }


def test_an_idle_broker_leaves_and_leaves_nothing(tmp_path: Path) -> None:
    with rig(tmp_path, idle_exit_ms=300) as broker:
        info = broker.start()
        wait_gone(info.process)
        assert sorted(path.name for path in broker.directory.iterdir()) == ["logs"]


def test_a_broker_with_a_peer_is_not_idle(tmp_path: Path) -> None:
    with rig(tmp_path, idle_exit_ms=300) as broker:
        client = broker.client("a")
        first = client.control(Status())
        assert client.socket.poll(1000) == 0
        assert client.control(Status()).epoch == first.epoch
        client.send(Kind.GOODBYE)
        client.socket.close(1000)
        info = find_broker(broker.settings)
        assert info is not None
        wait_gone(info.process)


@pytest.mark.parametrize("how", ["signal", "told to"])
def test_a_broker_that_must_leave_tells_its_peers_and_cleans_up(broker: Rig, how: str) -> None:
    client = broker.client("a")
    info = broker.start()
    if how == "signal":
        assert send_signal(info.process, signal.SIGTERM)
    else:
        assert client.control(Shutdown()) == Done()
    assert client.answer() == Leaving(reason=how)
    wait_gone(info.process)
    assert sorted(path.name for path in broker.directory.iterdir()) == ["logs"]


@pytest.mark.parametrize("name", ["with space", "Verzeichnis-für-Läufe", "deep/" * 45 + "rt"])
def test_a_runtime_directory_of_any_name_works(broker: Rig, name: str) -> None:
    settings = msgspec.structs.replace(broker.settings, runtime_dir=broker.directory / name)
    info = ensure_broker(settings)
    try:
        with zmq.Context() as context:
            client = RawClient(context, info.address)
            client.hello("a")
            assert client.control(FindRole(role="host")).address == ""
            client.socket.close(0)
    finally:
        send_signal(info.process, signal.SIGTERM)
        wait_gone(info.process)
        shutil.rmtree(runtime_dir(settings))


def test_a_directory_in_the_place_of_what_says_where_the_broker_is_is_named_and_left_alone(broker: Rig) -> None:
    (broker.directory / "broker.json" / "inside").mkdir(parents=True)
    broker.directory.chmod(0o700)
    with pytest.raises(BrokerUnavailableError) as caught:
        ensure_broker(broker.settings)
    directory, log = broker.directory, log_path(broker.directory, "broker")
    assert caught.value.message == (
        f"The broker in {directory} cannot be used: its start ended with code 1. {directory}/broker.json is in the way "
        f"and is a directory. It was left alone: move it and start again. Its log: {log}"
    )
    assert (directory / "broker.json" / "inside").exists()


def test_a_plain_file_at_the_sockets_path_is_never_deleted(broker: Rig) -> None:
    broker.directory.mkdir(mode=0o700, parents=True)
    (broker.directory / "broker.sock").write_text("precious")
    with pytest.raises(BrokerUnavailableError, match="is in the way and is no socket"):
        ensure_broker(broker.settings)
    assert (broker.directory / "broker.sock").read_text() == "precious"
    assert find_broker(broker.settings) is None


def test_a_lock_that_is_a_symlink_is_refused_and_its_target_unchanged(broker: Rig, tmp_path: Path) -> None:
    (tmp_path / "target").write_text("precious")
    broker.directory.mkdir(mode=0o700, parents=True)
    (broker.directory / "broker.lock").symlink_to(tmp_path / "target")
    with pytest.raises(BrokerUnavailableError, match="cannot be used as a lock"):
        ensure_broker(broker.settings)
    assert (tmp_path / "target").read_text() == "precious"


def test_a_runtime_directory_that_is_deleted_is_noticed_and_one_broker_serves_again(broker: Rig) -> None:
    client = broker.client("a")
    first = broker.start()
    shutil.rmtree(broker.directory)
    second = broker.start()
    assert client.answer() == Leaving(reason="moved")
    wait_gone(first.process, timeout_s=4)
    assert find_broker(broker.settings) == second
    assert broker.client("b").control(Status()).epoch == second.epoch


def test_the_broker_has_a_session_of_its_own_and_none_of_our_descriptors(broker: Rig) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    try:
        info = broker.start()
        pid = info.process.pid
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        assert int(fields[3]) == pid
        assert Path(f"/proc/{pid}/cwd").resolve() == broker.directory.resolve()
        targets = {each.readlink() for each in Path(f"/proc/{pid}/fd").iterdir()}
        assert Path(f"/proc/self/fd/{writer}").readlink() not in targets
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        assert b"PYTEST" not in environment
    finally:
        os.close(reader)
        os.close(writer)


# On the wire -----------------------------------------------------------------------------------------------------


def test_a_message_smuggled_as_further_frames_is_refused_and_goes_nowhere(broker: Rig) -> None:
    victim, attacker = broker.client("victim"), broker.client("attacker")
    forged = codec.pack(Header(kind=Kind.TELL, to="victim", message_id=9), b"forged")
    attacker.socket.send_multipart([forged, b"victim", forged])
    assert attacker.answer().code == "protocol_error"
    fresh = broker.client()
    fresh.socket.send_multipart([forged] * 20_000)
    assert fresh.answer().code == "protocol_error"
    attacker.send(Kind.TELL, b"honest", to="victim")
    assert victim.receive()[2] == b"honest"
    assert attacker.control(Status()).counters["refused_protocol_error"] == 2


def test_an_oversized_frame_is_refused_with_a_reason(broker: Rig) -> None:
    client = broker.client("a")
    client.socket.send(b"x" * 300_000)
    assert client.answer().code == "too_large"
    assert client.control(FindRole(role="host")).address == ""


def test_a_client_with_a_routing_id_of_its_own_is_refused(broker: Rig) -> None:
    client = broker.client(options={})
    client.socket.close(0)
    with zmq.Context() as context, context.socket(zmq.DEALER) as chosen:
        chosen.setsockopt(zmq.LINGER, 0)
        chosen.setsockopt(zmq.RCVTIMEO, 5000)
        chosen.setsockopt(zmq.ROUTING_ID, b"mine")
        chosen.connect(broker.start().address)
        chosen.send(codec.pack(Header(kind=Kind.HELLO)))
        _, body = codec.unpack(chosen.recv_multipart()[1])
        assert codec.decode(body, Failure).code == "protocol_error"


PEER = """
import os, sys, zmq
from tests.support.broker_process import RawClient
context = zmq.Context()
client = RawClient(context, sys.argv[1])
client.hello(sys.argv[2])
client.send(5, b"last words", to=sys.argv[3])
print("ready", flush=True)
if sys.argv[4] == "exit":
    client.socket.close(1000); context.term(); os._exit(0)
sys.stdin.read()
"""


def test_a_death_is_told_to_watchers_and_frees_the_name_and_the_roles(broker: Rig) -> None:
    watcher = broker.client("watcher")
    peer = run_python(PEER, broker.start().address, "peer", "watcher", "stay", stdin=subprocess.PIPE)
    with peer:
        assert peer.stdout is not None
        peer.stdout.readline()
        assert watcher.receive()[2] == b"last words"
        assert watcher.control(Watch(address="peer")) == Done(incarnation=1)
        peer.kill()
        assert watcher.answer() == Terminated(address="peer", reason=GoneReason.EXITED, incarnation=1)
    broker.client("peer")


def test_what_a_process_said_before_it_exited_arrives_before_its_end(broker: Rig) -> None:
    watcher = broker.client("watcher")
    for number in range(5):
        name = f"peer-{number}"
        peer = run_python(PEER, broker.start().address, name, "watcher", "exit", stdin=subprocess.DEVNULL)
        peer.communicate()
        assert watcher.receive()[2] == b"last words"
        assert isinstance(watcher.control(Watch(address=name)), Done)
        assert watcher.answer().reason in (GoneReason.EXITED, GoneReason.UNKNOWN)


def test_the_kernel_says_who_a_peer_is(broker: Rig) -> None:
    client = broker.client()
    welcome = client.hello("a", process=msgspec.structs.replace(broker.start().process, pid=1))
    assert welcome.authority == Authority.OWNER
    [status] = client.control(Status()).peers
    assert status.pid == os.getpid()


def test_an_address_of_a_live_process_is_in_use_and_its_own_process_may_resume_it(broker: Rig) -> None:
    first = broker.client("a")
    first.control(Claim(role="host"))
    first.socket.close(0)
    resumed = broker.client()
    welcome = resumed.hello("a")
    assert welcome.resync is True


def test_the_log_has_the_lifecycle_only(broker: Rig) -> None:
    client = broker.client("a")
    for _ in range(50):
        client.socket.send(b"garbage")
        client.answer()
    info = broker.start()
    send_signal(info.process, signal.SIGTERM)
    wait_gone(info.process)
    assert liveness(info.process) is Liveness.DEAD
    events = [
        msgspec.json.decode(line)["event"] for line in log_path(broker.directory, "broker").read_bytes().splitlines()
    ]
    assert events == ["broker_started", "broker_left"]
