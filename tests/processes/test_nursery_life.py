"""The nursery among its launchers: one of it, never stuck, gone when nobody needs it, replaced when it is killed."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pisub.config import Settings
from pisub.errors import EnvironmentTooLargeError, InvalidArgumentError, LaunchError
from pisub.launchers.nursery import ANSWER_TIMEOUT_S, nurseries
from pisub.launchers.protocol import (
    LaunchRequest,
    decode_answer,
    encode_letter,
    encode_packet,
    memory_file,
    request_for,
)
from pisub.process import Liveness, ProcessIdentity, liveness, send_signal
from pisub.record.atomic import read_record
from pisub.record.model import Started
from pisub.runs.spec import LaunchMessage
from runner.nursery.core import MAX_UNREAD_ANSWERS
from tests.support.eventually import eventually
from tests.support.nursery_launches import again, launcher, nursery_paths, proof_of, run_paths, submitted


def connect(settings: Settings) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(20)
    connection.connect(str(nursery_paths(settings).socket))
    return connection


def send(connection: socket.socket, message: LaunchMessage) -> None:
    memory = memory_file(encode_letter(message))
    try:
        socket.send_fds(connection, [encode_packet(request_for(message))], [memory])
    finally:
        os.close(memory)


def fill(connection: socket.socket, packet: bytes) -> int:
    """Send until the other side reads no more; return how many packets went."""
    for sent in range(100_000):
        try:
            connection.send(packet)
        except BlockingIOError:
            return sent
    raise AssertionError("the nursery reads on and on")


def the_nursery(settings: Settings) -> ProcessIdentity:
    assert settings.runtime_dir is not None
    (found,) = nurseries(settings.runtime_dir)
    return found


def end(settings: Settings, tmp_path: Path, *messages: LaunchMessage) -> None:
    (tmp_path / "go").touch()
    for message in messages:
        proof_of(settings, message)


def started(settings: Settings) -> int:
    logs = (nursery_paths(settings).runtime_dir / "logs").glob("nursery-*.log")
    return sum(log.read_text().count('"nursery_started"') for log in logs)


def test_launchers_that_come_at_once_start_one_nursery(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    messages = [submitted(settings, tmp_path) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        launched = list(pool.map(lambda message: launcher(settings, "wait").launch_blocking(message), messages))
    assert [each.via for each in launched] == ["nursery"] * 6
    assert len({each.process.pid for each in launched}) == 6
    assert started(settings) == 1
    end(settings, tmp_path, *messages)


def test_a_nursery_holds_nothing_that_is_bound_to_the_process_that_made_it(settings: Settings, tmp_path: Path) -> None:
    message = submitted(settings, tmp_path)
    launcher(settings, "inventory").launch_blocking(message)
    assert proof_of(settings, message).exit_code == 0, run_paths(settings, message).stderr_log.read_text()
    seen = json.loads((tmp_path / "inventory.json").read_text())
    assert seen == {"objects": [], "threads": 1}


def test_two_forks_of_one_nursery_have_different_random_numbers(settings: Settings, tmp_path: Path) -> None:
    numbers: list[float] = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        message = submitted(settings, tmp_path / name)
        launcher(settings, "look").launch_blocking(message)
        proof_of(settings, message)
        numbers.append(json.loads((tmp_path / name / "seen.json").read_text())["random"])
    assert numbers[0] != numbers[1]


def test_a_launcher_that_never_reads_stops_only_itself(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    first = submitted(settings, tmp_path)
    launch = launcher(settings, "wait").launch_blocking
    launch(first)
    with connect(settings) as silent, connect(settings) as stuck:
        stuck.setblocking(False)
        sent = fill(stuck, encode_packet(LaunchRequest(1, "../x", b"/", b"/")))
        assert sent > MAX_UNREAD_ANSWERS
        second = submitted(settings, tmp_path)
        assert launch(second).via == "nursery"
        # And once it reads, it gets every answer.
        stuck.settimeout(20)
        answers = [decode_answer(stuck.recv(65536)) for _ in range(sent)]
        assert {answer.code for answer in answers} == {"protocol_error"}
        assert silent.fileno() >= 0
    end(settings, tmp_path, first, second)


def test_a_launcher_that_dies_at_any_point_leaves_a_run_or_nothing(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    first = submitted(settings, tmp_path)
    launch = launcher(settings, "wait").launch_blocking
    launch(first)
    connect(settings).close()  # before it sends
    with connect(settings) as connection:  # half a request, and no letter
        connection.send(encode_packet(request_for(first))[:7])
    nothing = submitted(settings, tmp_path)
    with connect(settings) as connection:  # a request, and no letter
        connection.send(encode_packet(request_for(nothing)))
    with connect(settings) as connection:  # somebody else's letter
        memory = memory_file(encode_letter(first))
        socket.send_fds(connection, [encode_packet(request_for(nothing))], [memory])
        os.close(memory)
        assert decode_answer(connection.recv(65536)).process is not None
    assert proof_of(settings, nothing).exit_code == 70 + 1
    run = submitted(settings, tmp_path)
    with connect(settings) as connection:  # after it sent
        send(connection, run)
    assert proof_of(settings, run).exit_code == 0
    last = submitted(settings, tmp_path)
    assert launch(last).via == "nursery"
    assert started(settings) == 1
    end(settings, tmp_path, first, last)


def test_runners_live_on_when_their_nursery_is_killed_and_the_next_launch_has_a_new_one(
    settings: Settings, tmp_path: Path
) -> None:
    first = submitted(settings, tmp_path)
    launch = launcher(settings, "wait").launch_blocking
    launched = launch(first)
    eventually((tmp_path / "waiting.json").exists)
    killed = the_nursery(settings)
    assert send_signal(killed, signal.SIGKILL)
    eventually(lambda: liveness(killed) is Liveness.DEAD)
    second = submitted(settings, tmp_path)
    assert launch(second).via == "nursery"
    assert the_nursery(settings) != killed
    assert liveness(launched.process) is Liveness.ALIVE
    end(settings, tmp_path, second)
    eventually(lambda: liveness(launched.process) is Liveness.DEAD)


def test_a_nursery_told_to_stop_takes_no_launch_more_and_stays_for_its_runners(
    settings: Settings, tmp_path: Path
) -> None:
    first = submitted(settings, tmp_path)
    launch = launcher(settings, "wait").launch_blocking
    launched = launch(first)
    old = the_nursery(settings)
    assert send_signal(old, signal.SIGTERM)
    eventually(lambda: not nursery_paths(settings).socket.exists())
    assert liveness(launched.process) is Liveness.ALIVE
    assert liveness(old) is Liveness.ALIVE
    second = submitted(settings, tmp_path)
    assert launch(second).via == "nursery"
    assert the_nursery(settings) != old
    end(settings, tmp_path, first, second)
    eventually(lambda: liveness(old) is Liveness.DEAD)
    assert nursery_paths(settings).socket.exists()


def test_a_nursery_without_runners_leaves_after_its_time(settings: Settings, tmp_path: Path) -> None:
    impatient = Settings(home=settings.home, runtime_dir=settings.runtime_dir, fsync=False, idle_exit_ms=200)
    (tmp_path / "go").touch()
    message = submitted(impatient, tmp_path)
    launcher(impatient, "wait").launch_blocking(message)
    nursery = the_nursery(impatient)
    proof_of(impatient, message)
    eventually(lambda: liveness(nursery) is Liveness.DEAD)
    assert not nursery_paths(impatient).socket.exists()
    again_there = submitted(impatient, tmp_path)
    assert launcher(impatient, "wait").launch_blocking(again_there).via == "nursery"
    proof_of(impatient, again_there)


def test_a_run_that_was_not_submitted_is_not_launched(settings: Settings, tmp_path: Path) -> None:
    message = again(submitted(settings, tmp_path), run_id="01m8qvy1zjzxtdf5deb8x7w9sh")
    with pytest.raises(LaunchError) as caught:
        launcher(settings, "wait").launch_blocking(message)
    assert caught.value.code == "unknown_run"


def test_a_launch_that_cannot_work_is_refused_before_anything_starts(settings: Settings, tmp_path: Path) -> None:
    message = submitted(settings, tmp_path)
    launch = launcher(settings, "wait").launch_blocking
    with pytest.raises(InvalidArgumentError, match="is not a directory"):
        launch(again(message, cwd=str(tmp_path / "none")))
    with pytest.raises(EnvironmentTooLargeError):
        launch(again(message, environ={"A": "x" * 1_100_000}))
    assert not nursery_paths(settings).socket.exists()


def test_a_file_that_is_no_socket_at_the_nursery_s_place_is_left_alone(settings: Settings, tmp_path: Path) -> None:
    message = submitted(settings, tmp_path)
    place = nursery_paths(settings).socket
    place.write_text("precious")
    (tmp_path / "go").touch()
    assert launcher(settings, "wait").launch_blocking(message).via == "exec"
    assert place.read_text() == "precious"
    end(settings, tmp_path, message)


@pytest.mark.parametrize("nursery", [True, False])
def test_a_user_s_runner_py_in_the_directory_and_on_pythonpath_does_no_harm(
    settings: Settings, tmp_path: Path, private_places: Path, nursery: bool
) -> None:
    for name in ("runner.py", "pisub.py", "broker.py", "zmq.py", "sitecustomize.py"):
        (tmp_path / name).write_text("raise SystemExit('the user module was run')\n" * (name != "sitecustomize.py"))
    message = submitted(settings, tmp_path)
    code = (
        "import sys; sys.path.append(sys.argv[1]); import msgspec, sys\n"
        "from pathlib import Path\n"
        "from pisub.config import Settings\n"
        "from pisub.launchers.local import LocalLauncher\n"
        "from pisub.launchers.protocol import decode_letter\n"
        "s = Settings(home=Path(sys.argv[2]), runtime_dir=Path(sys.argv[3]), fsync=False, nursery=sys.argv[4] == '1')\n"
        "print(LocalLauncher(s).launch_blocking(decode_letter(sys.stdin.buffer.read())).via)\n"
    )
    out = subprocess.run(
        [sys.executable, "-P", "-E", "-c", code, ".", message.home, message.runtime_dir, "01"[nursery]],
        input=encode_letter(message),
        capture_output=True,
        cwd=tmp_path,
        env={**message.environ, "PYTHONPATH": str(tmp_path)},
        check=False,
    )
    assert (out.stdout, out.stderr) == ([b"exec\n", b"nursery\n"][nursery], b"")
    proof_of(settings, message)
    assert b"the user module" not in run_paths(settings, message).stderr_log.read_bytes()


def test_a_stopped_nursery_is_passed_over_soon_and_what_it_forks_later_leaves(
    settings: Settings, tmp_path: Path
) -> None:
    first, second = submitted(settings, tmp_path), submitted(settings, tmp_path)
    assert launcher(settings, "wait").launch_blocking(first).via == "nursery"
    nursery = the_nursery(settings)
    send_signal(nursery, signal.SIGSTOP)
    began = time.monotonic()
    launched = launcher(settings, "wait").launch_blocking(second)
    assert launched.via == "exec"
    assert time.monotonic() - began < ANSWER_TIMEOUT_S / 2
    paths = run_paths(settings, second)
    eventually(paths.started.exists, what="the new interpreter's runner begins")
    send_signal(nursery, signal.SIGCONT)
    eventually((tmp_path / "second").exists, what="the nursery's late runner finds the run begun, and leaves")
    end(settings, tmp_path, first, second)
    started_by = read_record(paths.started, Started)
    assert started_by is not None
    assert started_by.process == launched.process == proof_of(settings, second).process
