from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

import pytest

from pisub.errors import InvalidArgumentError, UnknownRunError, UnsafePathError
from pisub.ids import new_id
from pisub.process import ProcessIdentity, own_identity
from pisub.record.control import UNREADABLE, consume, read_all_requests, read_requests, request_control
from pisub.record.layout import Layout
from pisub.record.lock import RunLock, is_held
from pisub.record.model import ControlRequest
from tests.support.record_samples import NOW_MS, make_layout, submit


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return make_layout(tmp_path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "d").mkdir(mode=0o700)
    return tmp_path / "d" / "run.lock"


def test_a_lock_has_one_holder_also_within_a_process(path: Path) -> None:
    assert is_held(path) is False
    with RunLock.acquire(path) or pytest.fail("busy") as lock:
        assert (RunLock.acquire(path), is_held(path), lock.is_held) == (None, True, True)
    assert (is_held(path), lock.is_held) == (False, False)
    with RunLock.acquire(path) or pytest.fail("busy"):
        pass


def test_a_lock_is_a_private_file(path: Path) -> None:
    before = os.umask(0)
    try:
        with RunLock.acquire(path) or pytest.fail("busy"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_a_lock_whose_file_was_replaced_is_taken_anew(path: Path) -> None:
    with RunLock.acquire(path) or pytest.fail("busy"):
        path.unlink()
        with RunLock.acquire(path) or pytest.fail("the new file is free"):
            assert is_held(path)


def test_a_file_that_was_replaced_between_opening_and_locking_is_not_the_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock

    def flock_late(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", real)
        path.unlink()
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock_late)
    assert RunLock.acquire(path) is None
    with RunLock.acquire(path) or pytest.fail("busy"):
        assert is_held(path)


def test_a_lock_that_is_a_symlink_is_refused(path: Path, tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"")
    path.symlink_to(tmp_path / "target")
    for operation in (RunLock.acquire, is_held):
        with pytest.raises((UnsafePathError, OSError)):
            operation(path)


def test_a_forked_child_does_not_keep_its_parents_lock(path: Path) -> None:
    lock = RunLock.acquire(path) or pytest.fail("busy")
    ready_read, ready_write = os.pipe()
    end_read, end_write = os.pipe()
    pid = os.fork()
    if pid == 0:  # pragma: no cover
        os.write(ready_write, b"1" if lock.is_held else b"0")
        os.close(end_write)
        os.read(end_read, 1)
        os._exit(0)
    try:
        assert os.read(ready_read, 1) == b"0"
        assert is_held(path), "the child closed its copy and did not unlock the parent's"
        lock.release()
        assert not is_held(path), "the child, still alive, holds nothing"
    finally:
        for descriptor in (ready_read, ready_write, end_read, end_write):
            os.close(descriptor)
        os.waitpid(pid, 0)


def make_request(kind: str, *, at: int = NOW_MS, reason: str = "") -> ControlRequest:
    return ControlRequest(type=kind, requested_at=at, by=own_identity(), source="test", reason=reason)


def test_requests_are_read_strongest_first_and_the_first_of_a_kind_stands(layout: Layout) -> None:
    paths = layout.run(submit(layout).run_id)
    first = {kind: make_request(kind, reason="first") for kind in ("interrupt", "timeout", "stop")}
    assert [request_control(paths, each) for each in first.values()] == [True, True, True]
    assert request_control(paths, make_request("stop", reason="second")) is False
    assert list(read_requests(paths).items()) == [(kind, first[kind]) for kind in ("stop", "timeout", "interrupt")]


def test_a_taken_request_leaves_its_slot_and_is_not_forgotten(layout: Layout) -> None:
    paths = layout.run(submit(layout).run_id)
    stop, interrupt = make_request("stop"), make_request("interrupt")
    for each in (stop, interrupt):
        request_control(paths, each)
    assert [consume(paths, kind) for kind in ("stop", "interrupt", "timeout")] == [True, True, False]
    assert (read_requests(paths), read_all_requests(paths)) == ({}, {"stop": stop, "interrupt": interrupt})
    assert [request_control(paths, each) for each in (stop, interrupt)] == [False, True], "an end is asked for once"


def test_a_request_that_does_not_parse_still_counts(layout: Layout) -> None:
    paths = layout.run(submit(layout).run_id)
    paths.request("stop").write_bytes(b"\0\0")
    expected = ControlRequest(type="stop", requested_at=0, by=ProcessIdentity(pid=0), source=UNREADABLE)
    assert read_requests(paths) == {"stop": expected}


def test_a_directory_in_the_place_of_a_request_still_counts(layout: Layout) -> None:
    paths = layout.run(submit(layout).run_id)
    paths.request("stop").mkdir()
    assert [request.source for request in read_requests(paths).values()] == [UNREADABLE]
    assert consume(paths, "stop")
    assert read_requests(paths) == {}
    assert [request.source for request in read_all_requests(paths).values()] == [UNREADABLE]


def test_an_unknown_kind_and_an_unknown_run_are_refused(layout: Layout) -> None:
    paths = layout.run(submit(layout).run_id)
    for operation in (
        lambda: request_control(paths, make_request("../stop")),
        lambda: consume(paths, "pause"),
    ):
        with pytest.raises(InvalidArgumentError):
            operation()
    with pytest.raises(UnknownRunError):
        request_control(layout.run(new_id()), make_request("stop"))
