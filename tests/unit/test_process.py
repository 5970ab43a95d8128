import os
import signal
import subprocess
import sys

import msgspec

from pisub.process import (
    Liveness,
    ProcessIdentity,
    identify,
    liveness,
    open_pidfd,
    own_identity,
    read_stat,
    send_signal,
)


def test_this_process_is_alive() -> None:
    assert liveness(own_identity()) is Liveness.ALIVE
    assert own_identity().pid == os.getpid()


def test_a_pid_that_was_used_again_is_dead_and_is_not_signalled() -> None:
    impostor = msgspec.structs.replace(own_identity(), start_ticks=own_identity().start_ticks + 1)
    assert liveness(impostor) is Liveness.DEAD
    assert open_pidfd(impostor) is None
    assert send_signal(impostor, signal.SIGKILL) is False


def test_a_record_without_a_start_time_is_unknown_and_is_not_signalled() -> None:
    nameless = msgspec.structs.replace(own_identity(), start_ticks=0)
    assert liveness(nameless) is Liveness.UNKNOWN
    assert send_signal(nameless, signal.SIGKILL) is False


def test_another_machine_or_namespace_is_unknown() -> None:
    assert liveness(msgspec.structs.replace(own_identity(), machine_id="elsewhere")) is Liveness.UNKNOWN
    assert liveness(msgspec.structs.replace(own_identity(), pid_namespace=1)) is Liveness.UNKNOWN


def test_another_boot_of_this_machine_is_dead() -> None:
    assert liveness(msgspec.structs.replace(own_identity(), boot_id="before")) is Liveness.DEAD


def test_a_pid_that_cannot_be_is_unknown() -> None:
    assert liveness(msgspec.structs.replace(own_identity(), pid=0)) is Liveness.UNKNOWN
    assert liveness(msgspec.structs.replace(own_identity(), pid=-1)) is Liveness.UNKNOWN


def test_a_zombie_and_a_reaped_process_are_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = identify(child.pid)
    assert identity is not None
    assert liveness(identity) is Liveness.ALIVE
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert liveness(identity) is Liveness.DEAD
    assert identify(child.pid) is None
    child.wait()
    assert liveness(identity) is Liveness.DEAD
    assert open_pidfd(identity) is None


def test_a_name_with_spaces_and_parentheses_does_not_confuse_the_reader(tmp_path: object) -> None:
    script = "import ctypes; ctypes.CDLL(None).prctl(15, b') R 1 (a b', 0, 0, 0); print(flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        stat = read_stat(child.pid)
        child.communicate()
    assert stat is not None
    assert (stat.pid, stat.parent_pid) == (child.pid, os.getpid())


def test_an_identity_survives_json() -> None:
    identity = own_identity()
    assert msgspec.json.decode(msgspec.json.encode(identity), type=ProcessIdentity) == identity
