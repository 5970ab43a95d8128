"""A launch, by the nursery and by a new interpreter: the same process comes out of both."""

import json
import os
import resource
import stat
from pathlib import Path

import pytest

from pisub.config import Settings
from pisub.launchers.base import Launched
from pisub.process import Liveness, ProcessIdentity, identify, liveness
from pisub.record.model import ProcessTerminalProof
from tests.support.eventually import eventually
from tests.support.nursery_launches import again, launcher, proof_of, run_paths, submitted

WAYS = [pytest.param(True, id="nursery"), pytest.param(False, id="exec")]


def way(settings: Settings, nursery: bool) -> Settings:
    return Settings(home=settings.home, runtime_dir=settings.runtime_dir, fsync=False, nursery=nursery)


def wait_for(path: Path) -> object:
    eventually(path.exists, what=f"{path} exists")
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("nursery", WAYS)
def test_a_runner_is_like_a_process_that_its_caller_had_started(
    settings: Settings, tmp_path: Path, nursery: bool
) -> None:
    odd = os.fsdecode(b"\xff=\xfe \n'$(x)")
    message = submitted(way(settings, nursery), tmp_path, environ={"ODD": odd, "TZ": "XYZ3", "SECRET": "s3cr3t"})
    message = again(message, umask=0o022, nofile=(300, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    message = again(message, soft_limits={"FSIZE": 5_000_000})
    launched = launcher(way(settings, nursery), "look").launch_blocking(message)
    seen = wait_for(tmp_path / "seen.json")
    paths = run_paths(settings, message)

    assert launched.via == ("nursery" if nursery else "exec")
    assert isinstance(seen, dict)
    assert seen.pop("environ") == {ascii(key): ascii(value) for key, value in message.environ.items()}
    assert 0 <= seen.pop("random") < 1
    assert seen == {
        "cwd": str(tmp_path),
        "pid": launched.process.pid,
        "session": launched.process.pid,
        "descriptors": {"0": "/dev/null", "1": str(paths.stdout_log), "2": str(paths.stderr_log)},
        "umask": 0o022,
        "nofile": [300, resource.getrlimit(resource.RLIMIT_NOFILE)[1]],
        "file_size": [5_000_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]],
        "ignored": ["SIGPIPE", "SIGXFSZ"],
        "mask": 0,
        "tz": "XYZ",
        "home": message.home,
        "runtime_dir": message.runtime_dir,
        "main_thread": True,
        "title": f"pisub: run {message.run_id}",
        "exit_of_child": 7,
    }
    proof = proof_of(settings, message)
    assert (proof.state, proof.exit_code, proof.signal, proof.process) == ("observed", 7, None, launched.process)
    assert paths.stdout_log.read_text() == "to stdout\n"
    assert paths.stderr_log.read_text() == "to stderr\n"
    assert {stat.S_IMODE(path.stat().st_mode) for path in (paths.stdout_log, paths.stderr_log)} == {0o600}


@pytest.mark.parametrize("nursery", WAYS)
def test_a_signal_s_name_and_the_use_of_resources_are_on_record(
    settings: Settings, tmp_path: Path, nursery: bool
) -> None:
    message = submitted(way(settings, nursery), tmp_path)
    launched = launcher(way(settings, nursery), "wait").launch_blocking(message)
    wait_for(tmp_path / "waiting.json")
    os.kill(launched.process.pid, 9)
    proof = proof_of(settings, message)
    assert proof == ProcessTerminalProof(
        run_id=message.run_id,
        state="observed",
        process=launched.process,
        observed_at=proof.observed_at,
        signal="SIGKILL",
        user_s=proof.user_s,
        system_s=proof.system_s,
        max_rss_kib=proof.max_rss_kib,
    )
    assert proof.max_rss_kib is None or proof.max_rss_kib > 1_000
    gone(launched)


@pytest.mark.parametrize("nursery", WAYS)
def test_an_entry_that_breaks_ends_its_runner_and_says_so_in_the_run_s_log(
    settings: Settings, tmp_path: Path, nursery: bool
) -> None:
    message = submitted(way(settings, nursery), tmp_path)
    launcher(way(settings, nursery), "raises").launch_blocking(message)
    assert proof_of(settings, message).exit_code == 70
    assert "RuntimeError: the entry broke" in run_paths(settings, message).stderr_log.read_text()


@pytest.mark.parametrize("nursery", WAYS)
def test_environment_and_task_are_in_no_command_line_and_no_file(
    settings: Settings, private_places: Path, tmp_path: Path, nursery: bool
) -> None:
    message = submitted(way(settings, nursery), tmp_path, environ={"TOKEN": "s3cr3t-token"})
    launched = launcher(way(settings, nursery), "wait").launch_blocking(message)
    wait_for(tmp_path / "waiting.json")
    shown = b""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            for name in ("cmdline", "environ"):
                try:
                    shown += (entry / name).read_bytes()
                except OSError:
                    continue
    assert b"s3cr3t-token" not in shown
    assert b"the secret task" not in shown
    written = [path for path in private_places.rglob("*") if path.is_file() and b"s3cr3t-token" in path.read_bytes()]
    assert written == []
    (tmp_path / "go").touch()
    assert proof_of(settings, message).exit_code == 0
    gone(launched)


@pytest.mark.parametrize("nursery", WAYS)
def test_a_run_launched_twice_is_the_first_process_s_and_so_is_its_end(
    settings: Settings, tmp_path: Path, nursery: bool
) -> None:
    message = submitted(way(settings, nursery), tmp_path)
    launch = launcher(way(settings, nursery), "wait").launch_blocking
    first = launch(message)
    wait_for(tmp_path / "waiting.json")
    second = launch(message)
    eventually((tmp_path / "second").exists)
    gone(second)
    assert not run_paths(settings, message).process_terminal.exists()
    (tmp_path / "go").touch()
    assert proof_of(settings, message).process == first.process


@pytest.mark.parametrize("nursery", WAYS)
def test_what_a_killed_runner_left_running_is_ended(settings: Settings, tmp_path: Path, nursery: bool) -> None:
    message = submitted(way(settings, nursery), tmp_path)
    launched = launcher(way(settings, nursery), "orphan").launch_blocking(message)
    left = process_in(tmp_path / "orphan.json")
    wait_for(tmp_path / "waiting.json")
    os.kill(launched.process.pid, 9)
    assert (proof_of(settings, message).state, proof_of(settings, message).signal) == ("observed", "SIGKILL")
    assert liveness(left) is Liveness.DEAD


@pytest.mark.parametrize("nursery", WAYS)
def test_what_bears_no_mark_of_a_killed_runner_is_known_by_its_adoption_and_others_are_spared(
    settings: Settings, tmp_path: Path, nursery: bool
) -> None:
    (tmp_path / "other").mkdir()
    one, other = submitted(way(settings, nursery), tmp_path), submitted(way(settings, nursery), tmp_path / "other")
    launched = launcher(way(settings, nursery), "escapee").launch_blocking(one)
    bystander = launcher(way(settings, nursery), "escapee").launch_blocking(other)
    left, spared = process_in(tmp_path / "orphan.json"), process_in(tmp_path / "other" / "orphan.json")
    wait_for(tmp_path / "waiting.json")
    wait_for(tmp_path / "other" / "waiting.json")
    os.kill(launched.process.pid, 9)
    assert (proof_of(settings, one).state, proof_of(settings, one).signal) == ("observed", "SIGKILL")
    assert liveness(left) is Liveness.DEAD
    assert (liveness(bystander.process), liveness(spared)) == (Liveness.ALIVE, Liveness.ALIVE)
    os.kill(bystander.process.pid, 9)
    assert proof_of(settings, other).state == "observed"
    assert liveness(spared) is Liveness.DEAD


def test_what_a_runner_left_by_its_own_will_is_reported_and_not_touched(settings: Settings, tmp_path: Path) -> None:
    message = submitted(settings, tmp_path, environ={"LEAVE": "1"})
    launcher(settings, "orphan").launch_blocking(message)
    left = process_in(tmp_path / "orphan.json")
    proof = proof_of(settings, message)
    assert (proof.state, proof.reason, proof.exit_code) == ("unknown", "process-tree-unverified", 0)
    assert liveness(left) is Liveness.ALIVE
    os.kill(left.pid, 9)
    eventually(lambda: liveness(left) is Liveness.DEAD)


def process_in(path: Path) -> ProcessIdentity:
    pid = wait_for(path)
    assert isinstance(pid, int)
    found = identify(pid)
    assert found is not None
    return found


def gone(launched: Launched) -> None:
    """The process was reaped, not left as a zombie."""
    eventually(lambda: not Path(f"/proc/{launched.process.pid}").exists(), what="the runner was reaped")
