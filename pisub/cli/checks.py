"""The checks of ``pisub doctor``. Each looks at one thing, changes nothing that stays, and never raises."""

from __future__ import annotations

import getpass
import os
import platform
import secrets
import stat
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, Literal

from pisub.config import Settings, config_path, unknown_variables
from pisub.errors import PisubError
from pisub.launch import find_broker, silent_broker
from pisub.launchers.nursery import nurseries
from pisub.paths import PRIVATE_DIR, ensure_private_dir, runtime_dir, state_root
from pisub.process import Liveness, is_stopped, liveness, own_identity
from pisub.protocol.base import Record
from pisub.version import __version__

_PACKAGES: Final = ("pyzmq", "msgspec", "psutil", "structlog", "prompt_toolkit")
#: Broker and runners of a heavy session need about this many descriptors.
_ENOUGH_FILES: Final = 1024


class Check(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What one check found."""

    name: str
    outcome: Literal["ok", "warning", "failed"]
    detail: str


def run_checks(settings: Settings) -> list[Check]:
    """Look at everything, in the order in which a person would."""
    return [
        _python(),
        _packages(),
        _platform(),
        _configuration(),
        _directory("state directory", state_root(settings)),
        _directory("runtime directory", runtime_dir(settings)),
        _hard_links(state_root(settings)),
        _pidfd(),
        _descriptors(),
        _broker(settings),
        _nurseries(settings),
        _linger(),
    ]


def _ok(name: str, detail: str) -> Check:
    return Check(name=name, outcome="ok", detail=detail)


def _warn(name: str, detail: str) -> Check:
    return Check(name=name, outcome="warning", detail=detail)


def _failed(name: str, detail: str) -> Check:
    return Check(name=name, outcome="failed", detail=detail)


def _python() -> Check:
    text = f"{platform.python_implementation()} {platform.python_version()}, pisub {__version__}, {sys.executable}"
    return _ok("python", text) if sys.version_info >= (3, 11) else _failed("python", f"{text}: 3.11 is needed")


def _packages() -> Check:
    found: list[str] = []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            return _failed("packages", f"{name} is not installed")
    return _ok("packages", ", ".join(found))


def _platform() -> Check:
    text = f"{platform.system()} {platform.release()}"
    return (
        _ok("platform", text) if sys.platform == "linux" else _warn("platform", f"{text}: deaths are seen by polling")
    )


def _configuration() -> Check:
    path = config_path()
    text = str(path) if path.exists() else f"{path} (not there: the defaults)"
    if unknown := unknown_variables():
        return _warn("configuration", f"{text}; no settings, and ignored: {', '.join(unknown)}")
    return _ok("configuration", text)


def _directory(name: str, path: Path) -> Check:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return _ok(name, f"{path} (made on first use)")
    except OSError as error:
        return _failed(name, f"{path}: {error.strerror}")
    if not stat.S_ISDIR(found.st_mode):
        return _failed(name, f"{path} is no directory: move it away")
    if found.st_uid != os.geteuid():
        return _failed(name, f"{path} belongs to user {found.st_uid}: choose another")
    if stat.S_IMODE(found.st_mode) != PRIVATE_DIR:
        return _warn(name, f"{path} has mode {stat.S_IMODE(found.st_mode):04o}: it becomes 0700 on next use")
    return _ok(name, f"{path} (0700)")


def _hard_links(root: Path) -> Check:
    """Try what every shared file is made by: a link that fails where the name is taken."""
    first, second = (root / f".doctor-{secrets.token_hex(6)}" for _ in range(2))
    try:
        ensure_private_dir(root)
        first.touch(mode=0o600)
        second.hardlink_to(first)
        try:
            second.hardlink_to(first)
        except FileExistsError:
            return _ok("hard links", f"work in {root}")
        return _failed("hard links", f"{root}: a taken name was linked again; use a local filesystem (PISUB_HOME)")
    except (OSError, PisubError) as error:
        return _failed("hard links", f"{root}: {error}; use a local filesystem (PISUB_HOME)")
    finally:
        for path in (first, second):
            path.unlink(missing_ok=True)


def _pidfd() -> Check:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError) as error:
        return _warn("pidfd", f"not there ({error}): deaths are noticed by polling, runners cannot be signalled")
    is_sure = liveness(own_identity()) is Liveness.ALIVE
    return (
        _ok("pidfd", "deaths are noticed at once") if is_sure else _warn("pidfd", "/proc does not identify processes")
    )


def _descriptors() -> Check:
    import resource  # noqa: PLC0415  # only here

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{soft} (the broker raises its own to {hard})"
    return _ok("open files", text) if hard >= _ENOUGH_FILES else _warn("open files", f"{text}: few for many runs")


def _broker(settings: Settings) -> Check:
    info = find_broker(settings)
    if info is None:
        return _ok("broker", "none runs (the first client starts one)")
    if is_stopped(info.process):
        return _failed("broker", silent_broker(info).message)
    return _ok("broker", f"runs, pid {info.process.pid}, {info.address}")


def _nurseries(settings: Settings) -> Check:
    if not settings.nursery:
        return _ok("nursery", "not used: runners are started one by one")
    sockets = sorted(runtime_dir(settings).glob("nursery-*.sock"))
    if not sockets:
        return _ok("nursery", "none runs (the first launch starts one)")
    stopped = [str(each.pid) for each in nurseries(runtime_dir(settings)) if is_stopped(each)]
    if stopped:
        return _warn("nursery", f"stopped (pid {', '.join(stopped)}): `kill -CONT` continues it; launches go without")
    return _ok("nursery", ", ".join(path.name for path in sockets))


def _linger() -> Check:
    """Warn where logging out takes detached runs along."""
    if not Path("/run/systemd/system").is_dir():
        return _ok("logging out", "no systemd here: detached runs go on")
    user = getpass.getuser()
    if (Path("/var/lib/systemd/linger") / user).exists():
        return _ok("logging out", "lingering is on: detached runs go on")
    return _warn(
        "logging out",
        f"lingering is off: at your last logout XDG_RUNTIME_DIR goes, and with KillUserProcesses=yes every run; "
        f"`loginctl enable-linger {user}` turns it on",
    )
