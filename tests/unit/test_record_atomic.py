from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from pisub.errors import RecordCorruptError, UnsafePathError
from pisub.process import own_identity
from pisub.protocol.base import Record
from pisub.record.atomic import (
    MAX_RECORD_BYTES,
    TORN,
    decode_record,
    encode_record,
    read_bytes,
    read_record,
    read_survivor,
    replace,
    sweep_temp,
    write_new,
)
from pisub.record.dirs import list_names, make_dir


class Sample(Record, frozen=True, kw_only=True):
    a_text: str
    inner: dict[str, int] = {}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return home


@pytest.fixture(params=[0o000, 0o077, 0o777])
def any_umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_file_is_created_once_and_the_second_writer_changes_nothing(home: Path) -> None:
    assert [write_new(home / "f", data, fsync=True) for data in (b"first", b"second")] == [True, False]
    assert {path.name: path.read_bytes() for path in home.iterdir()} == {"f": b"first"}


def test_replace_leaves_the_new_content_and_no_other_file(home: Path) -> None:
    replace(home / "f", b"old", fsync=True)
    replace(home / "f", b"new", fsync=False)
    assert {path.name: path.read_bytes() for path in home.iterdir()} == {"f": b"new"}


@pytest.mark.usefixtures("any_umask")
def test_files_and_directories_are_private_whatever_the_umask(home: Path) -> None:
    make_dir(home / "d")
    write_new(home / "d" / "created", b"", fsync=False)
    replace(home / "d" / "replaced", b"", fsync=False)
    assert [mode(path) for path in (home / "d", home / "d" / "created", home / "d" / "replaced")] == [
        0o700,
        0o600,
        0o600,
    ]


def test_a_directory_that_is_a_symlink_is_refused_and_its_target_unchanged(home: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    (target / "f").write_bytes(b"theirs")
    (home / "link").symlink_to(target)
    for operation in (
        lambda: write_new(home / "link" / "g", b"x", fsync=False),
        lambda: replace(home / "link" / "f", b"x", fsync=False),
        lambda: read_bytes(home / "link" / "f"),
        lambda: make_dir(home / "link"),
        lambda: make_dir(home / "link" / "d"),
        lambda: list_names(home / "link"),
        lambda: sweep_temp(home / "link"),
    ):
        with pytest.raises(UnsafePathError):
            operation()
    assert {path.name: path.read_bytes() for path in target.iterdir()} == {"f": b"theirs"}


def test_a_file_that_is_a_symlink_is_neither_read_nor_written_through(home: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"theirs")
    (home / "f").symlink_to(target)
    with pytest.raises(UnsafePathError):
        read_bytes(home / "f")
    with pytest.raises(UnsafePathError):
        replace(home / "f", b"ours", fsync=False)
    assert write_new(home / "f", b"ours", fsync=False) is False
    assert target.read_bytes() == b"theirs"


def test_a_fifo_in_the_place_of_a_record_is_refused_and_does_not_block(home: Path) -> None:
    os.mkfifo(home / "f", 0o600)
    with pytest.raises(UnsafePathError):
        read_bytes(home / "f")


def test_a_directory_that_others_can_write_is_refused(home: Path) -> None:
    home.chmod(0o770)
    with pytest.raises(UnsafePathError):
        write_new(home / "f", b"x", fsync=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_and_directories_of_another_user_are_refused(home: Path) -> None:
    (home / "f").write_bytes(b"{}")
    (home / "d").mkdir(mode=0o700)
    for name in ("f", "d"):
        os.chown(home / name, 12345, 12345)
    for operation in (
        lambda: read_bytes(home / "f"),
        lambda: replace(home / "f", b"", fsync=False),
        lambda: write_new(home / "d" / "g", b"", fsync=False),
    ):
        with pytest.raises(UnsafePathError):
            operation()
    assert (home / "f").read_bytes() == b"{}"


def test_a_name_as_long_as_the_file_system_takes_can_be_written(home: Path) -> None:
    name = "n" * 255
    assert write_new(home / name, b"x", fsync=False)
    assert read_bytes(home / name) == b"x"


def test_the_sweep_removes_temporary_files_of_the_dead_alone(home: Path) -> None:
    own = own_identity()

    def temp(ticks: int, namespace: int) -> str:
        replace(home / "sample", b"", fsync=False)
        tag = tag_of_this_process(home)
        pid, _, _, boot, machine = tag.split("-")
        return f".f.{pid}-{ticks}-{namespace}-{boot}-{machine}.aa.tmp"

    dead = temp(own.start_ticks + 1, own.pid_namespace)
    alive = temp(own.start_ticks, own.pid_namespace)
    unknown = temp(own.start_ticks + 1, own.pid_namespace + 1)
    for name in (dead, alive, unknown, ".not-ours.tmp"):
        (home / name).write_bytes(b"")
    assert sweep_temp(home) == 1
    assert sorted(path.name for path in home.iterdir()) == sorted((alive, unknown, ".not-ours.tmp", "sample"))
    assert sweep_temp(home / "missing") == 0


def tag_of_this_process(home: Path) -> str:
    from pisub.record.atomic import _temp_name  # noqa: PLC0415  # the one place that knows the form

    return _temp_name("f").split(".")[2]


def test_missing_is_none_and_malformed_names_the_path(home: Path) -> None:
    path = home / "f.json"
    assert read_record(path, Sample) is None
    assert read_record(home / "no" / "f.json", Sample) is None
    path.write_bytes(b'{\n  "aText": 5\n}\n')
    with pytest.raises(RecordCorruptError, match=r"f\.json") as caught:
        read_record(path, Sample)
    assert caught.value.code == "record_corrupt"


def test_every_beginning_of_a_record_reads_as_torn_and_the_whole_as_itself(home: Path) -> None:
    record = Sample(a_text="}\n}\n ü", inner={"x": 1, "}": 2})
    data = encode_record(record)
    assert decode_record(data, Sample, home) == record
    for end in range(len(data) - 1):  # without the last newline alone, it is still whole
        (home / "f").write_bytes(data[:end])
        value, cause = read_survivor(home / "f", Sample)
        assert (value, cause is not None) == (None, True), end


def test_a_whole_record_that_does_not_parse_is_not_taken_for_torn(home: Path) -> None:
    (home / "f").write_bytes(b'{\n  "a": 1\n}\n')
    with pytest.raises(RecordCorruptError) as caught:
        read_survivor(home / "f", Sample)
    assert caught.value.code != TORN


def test_a_file_larger_than_any_record_is_refused_unread(home: Path) -> None:
    with (home / "f").open("wb") as file:
        file.truncate(MAX_RECORD_BYTES + 1)
    with pytest.raises(RecordCorruptError):
        read_bytes(home / "f")


def test_a_later_version_with_more_keys_is_read(home: Path) -> None:
    (home / "f").write_bytes(b'{"aText": "x", "added": true}')
    assert read_record(home / "f", Sample) == Sample(a_text="x")
