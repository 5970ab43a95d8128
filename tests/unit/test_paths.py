import os
import stat
from pathlib import Path

import pytest

from pisub.config import Settings
from pisub.errors import UnsafePathError
from pisub.paths import ensure_private_dir, runtime_dir, state_root


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_directory_is_private_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        assert mode(ensure_private_dir(tmp_path / "a" / "b")) == 0o700
    finally:
        os.umask(old)


def test_an_open_directory_is_closed_to_others(tmp_path: Path) -> None:
    path = tmp_path / "open"
    path.mkdir(mode=0o755)
    assert mode(ensure_private_dir(path)) == 0o700


def test_a_symlink_is_refused_and_its_target_unchanged(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(UnsafePathError):
        ensure_private_dir(tmp_path / "link")
    assert mode(target) == 0o755


def test_a_file_in_the_place_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UnsafePathError):
        ensure_private_dir(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a directory of another user's")
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "theirs"
    path.mkdir(mode=0o700)
    os.chown(path, 12345, 12345)
    with pytest.raises(UnsafePathError, match="belongs to user 12345"):
        ensure_private_dir(path)


def test_the_runtime_directory_is_found_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert runtime_dir(Settings(runtime_dir=Path("/run/x"))) == Path("/run/x")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    assert runtime_dir(Settings()) == Path("/run/user/7/pisub")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert runtime_dir(Settings()).name == f"pisub-{os.getuid()}"


def test_a_path_too_long_for_a_socket_gets_the_same_short_one_every_time() -> None:
    long = Settings(runtime_dir=Path("/tmp/" + "ü b" * 60))
    short = runtime_dir(long)
    assert len(os.fsencode(short)) < 58
    assert short == runtime_dir(long)
    assert short != runtime_dir(Settings(runtime_dir=Path("/tmp/" + "ü c" * 60)))


def test_the_state_root_is_home_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert state_root(Settings(home=Path("state"))) == tmp_path / "state"
