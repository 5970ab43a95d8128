"""The small parts under the shell: credentials, ancestors, process watch, lock, discovery, start commands."""

from __future__ import annotations

import os
import select
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from broker.crash import MAX_CRASH_FILES, CrashReport, write_report
from broker.liveness import Credentials, ProcessWatch, ancestors_of, is_full, parse_peer_address, watchable
from broker.singleton import Singleton
from broker.state import Limits
from pisub import launch
from pisub.config import Settings
from pisub.errors import AlreadyRunningError, UnsafePathError
from pisub.launch import BrokerInfo, Program, find_broker, program
from pisub.process import own_identity


@pytest.fixture
def directory(private_places: Path) -> Path:
    made = private_places / "rt"
    made.mkdir(mode=0o700)
    return made


@pytest.fixture
def singleton(directory: Path) -> Iterator[Singleton]:
    made = Singleton(directory)
    yield made
    made.close()


def info(**fields: object) -> BrokerInfo:
    known = BrokerInfo(address="ipc://x", process=own_identity(), epoch="e", wire_versions=(1,))
    return msgspec.structs.replace(known, **fields)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:1000:100:4711", Credentials(uid=1000, pid=4711)),
        ("a:b:c:0:0:1", Credentials(uid=0, pid=1)),
        ("127.0.0.1", None),
        ("localhost:x:0:1", None),
        ("localhost:-1:0:1", None),
        ("", None),
    ],
)
def test_the_kernels_word_is_read_from_the_end_of_the_peer_address(text: str, expected: Credentials | None) -> None:
    assert parse_peer_address(text) == expected


def test_ancestors_are_named_nearest_first() -> None:
    assert ancestors_of(os.getpid())[:1] == (os.getppid(),)
    assert ancestors_of(2**22 + 1) == ()


def test_what_is_no_live_process_is_not_watchable() -> None:
    assert watchable(os.getpid()) == own_identity()
    assert watchable(2**22 + 1) is None


def test_descriptors_are_full_before_they_are_used_up() -> None:
    assert (is_full(89, 100), is_full(90, 100)) == (False, True)


def test_a_watched_process_is_reported_once_when_it_goes() -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    watch = ProcessWatch()
    identity = watchable(child)
    assert identity is not None
    watch.watch(identity)
    watch.watch(identity)
    assert (watch.gone(), len(watch), watch.look_every_s) == ([], 1, None)
    os.close(writer)
    assert select.select([watch.fileno], [], [], 10)[0] == [watch.fileno]
    assert (watch.gone(), watch.gone(), len(watch)) == ([identity], [], 0)
    watch.watch(identity)  # a zombie by now
    assert watch.gone() == [identity]
    os.waitpid(child, 0)
    watch.close()


def test_a_process_no_longer_watched_is_not_reported() -> None:
    watch = ProcessWatch()
    watch.watch(own_identity())
    watch.unwatch(own_identity())
    watch.unwatch(own_identity())
    assert (len(watch), watch.gone()) == (0, [])
    watch.close()


def test_a_second_holder_of_the_lock_is_refused_until_the_first_lets_go(directory: Path) -> None:
    first, second = Singleton(directory), Singleton(directory)
    first.acquire()
    with pytest.raises(AlreadyRunningError):
        second.acquire()
    first.close()
    second.acquire()
    second.close()
    assert list(directory.iterdir()) == []


def test_a_socket_left_by_a_dead_broker_is_removed_and_anything_else_is_left_alone(directory: Path) -> None:
    path = directory / "broker.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    first = Singleton(directory)
    first.acquire()
    assert not path.exists()
    first.close()
    path.write_text("precious")
    with pytest.raises(UnsafePathError, match="was left alone"):
        Singleton(directory).acquire()
    assert path.read_text() == "precious"


def test_a_lock_that_was_replaced_is_noticed(singleton: Singleton, directory: Path) -> None:
    singleton.acquire()
    assert not singleton.is_displaced()
    (directory / "broker.lock").unlink()
    assert singleton.is_displaced()
    (directory / "broker.lock").touch()
    assert singleton.is_displaced()
    singleton.close()
    assert (directory / "broker.lock").exists()


def test_the_next_broker_s_socket_is_left_alone_whatever_number_its_file_got(
    singleton: Singleton, directory: Path
) -> None:
    singleton.acquire()
    with socket.socket(socket.AF_UNIX) as ours:
        ours.bind(str(singleton.socket_path))
        singleton.publish(info())
        singleton.socket_path.unlink()
    # Ours is closed and its name gone: a file system gives the number of its inode to the next file.
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(str(singleton.socket_path))
        assert singleton.is_displaced()
        singleton.remove_socket()
        assert singleton.socket_path.exists()


def test_what_is_published_is_what_clients_find_and_only_while_its_process_lives(
    singleton: Singleton, directory: Path
) -> None:
    settings = Settings(runtime_dir=directory)
    assert find_broker(settings) is None
    singleton.acquire()
    singleton.socket_path.touch()
    singleton.publish(info())
    assert find_broker(settings) == info()
    singleton.publish(info(process=msgspec.structs.replace(own_identity(), start_ticks=1)))
    assert find_broker(settings) is None
    singleton.withdraw()
    assert not (directory / "broker.json").exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"address": 1}', b"\xff" * 100])
def test_a_file_that_names_no_broker_is_no_broker(directory: Path, content: bytes) -> None:
    (directory / "broker.json").write_bytes(content)
    assert find_broker(Settings(runtime_dir=directory)) is None


def test_looking_for_a_broker_creates_nothing(tmp_path: Path) -> None:
    assert find_broker(Settings(runtime_dir=tmp_path / "none")) is None
    assert not (tmp_path / "none").exists()


def test_a_program_is_started_without_the_users_paths() -> None:
    for name in ("broker", "runner"):
        assert program(name) == Program((sys.executable, "-E", "-P", "-m", name))  # type: ignore[arg-type]


def test_where_our_module_would_not_be_found_the_folder_beside_us_is_the_only_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "broker.py").write_text("")
    monkeypatch.setattr("site.getsitepackages", lambda: [str(tmp_path)])
    monkeypatch.setattr("site.ENABLE_USER_SITE", False)
    parent = str(Path(launch.__file__).resolve().parents[1])
    assert program("broker") == Program((sys.executable, "-P", "-m", "broker"), {"PYTHONPATH": parent})


def test_crash_reports_do_not_fill_the_disk(private_places: Path) -> None:
    for number in range(MAX_CRASH_FILES + 3):
        report = CrashReport(
            epoch=str(number),
            error="",
            broker=own_identity(),
            started_at=0.0,
            limits=Limits(),
            entries=(),
            counters={},
        )
        write_report(private_places, report)
    assert len(list(private_places.glob("broker-crash-*.json"))) == MAX_CRASH_FILES
