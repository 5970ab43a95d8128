"""Fixtures for all tests: private directories, and a check that nothing is left behind."""

from __future__ import annotations

import contextlib
import gc
import shutil
import signal
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from pisub.config import Settings
from tests.support.eventually import eventually
from tests.support.leaks import MARK, end, is_daemon, marked_processes, open_descriptors

#: Folders whose tests start processes; the others are held to stricter rules.
_WITH_PROCESSES = frozenset({"processes", "faults", "cli", "docs"})


@pytest.fixture(autouse=True, scope="session")
def fresh_signals() -> None:
    """What is started in the background, or by nohup, ignores these; whom the tests start would inherit that."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def private_places(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Every test gets its own home, runtime directory and configuration, and leaves no process behind."""
    # A socket's path may have 107 bytes, and tmp_path alone is often longer.
    base = Path(tempfile.mkdtemp(prefix="psb-"))
    mark = uuid.uuid4().hex
    config = base / "config" / "config.toml"
    config.parent.mkdir()
    config.touch()
    for name, value in {
        "PISUB_HOME": str(base / "home"),
        "PISUB_RUNTIME_DIR": str(base / "run"),
        "PISUB_CONFIG": str(config),
        "PISUB_FSYNC": "0",
        MARK: mark,
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("PISUB_SESSION", "PISUB_RUN_ID", "PISUB_DEPTH", "PISUB_MAX_DEPTH", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    yield base
    try:
        if request.path.parent.name in _WITH_PROCESSES:
            _end_what_is_left(mark)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _end_what_is_left(mark: str) -> None:
    left = marked_processes(mark)
    daemons = [identity for identity, command in left.values() if is_daemon(command)]
    end(daemons, signal.SIGTERM, within_s=10.0)

    def others() -> dict[int, str]:
        return {pid: command for pid, (_, command) in marked_processes(mark).items() if not is_daemon(command)}

    try:
        eventually(lambda: not others(), what="all processes of the test end", within_s=5.0)
    except AssertionError:
        remaining = marked_processes(mark)
        end([identity for identity, _ in remaining.values()], signal.SIGKILL, within_s=5.0)
        pytest.fail(f"processes were left behind: {sorted(command for _, command in remaining.values())}")


@pytest.fixture(autouse=True)
def no_descriptor_left(private_places: Path) -> Iterator[None]:
    """A test closes what it opened."""
    before = open_descriptors()
    yield
    left = _opened_since(before)
    if left:
        gc.collect()  # what only a cycle keeps open is not left behind; a collection for every test would cost minutes
        # A thread that looks for a broker outlives its bus for a moment, with a file of the directory open.
        with contextlib.suppress(AssertionError):
            eventually(lambda: not _opened_since(before), what="everything is closed", within_s=3.0)
        left = _opened_since(before)
    assert not left, f"descriptors were left open: {left}"


def _opened_since(before: dict[int, str]) -> dict[int, str]:
    after = open_descriptors()
    if len(after) <= len(before):
        return {}
    # What libraries open once and keep: random sources, a capture file that was swapped.
    return {
        number: target
        for number, target in after.items()
        if before.get(number) != target and not target.startswith(("/dev/", "/tmp/tmp"))
    }


@pytest.fixture
def settings(private_places: Path) -> Settings:
    """The settings that every part is composed with, in the test's own directories."""
    return Settings(home=private_places / "home", runtime_dir=private_places / "run", fsync=False)
