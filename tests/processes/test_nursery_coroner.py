"""After a runner's death the record is finished by itself, with the cause, and by the real programs."""

import os
import socket
from pathlib import Path

import msgspec
import pytest

from pisub.config import Settings
from pisub.launchers.local import LocalLauncher
from pisub.launchers.protocol import encode_letter, encode_packet, memory_file, request_for
from pisub.protocol.runs import RunState
from pisub.record.layout import Layout
from pisub.record.reader import RunView, read_run
from pisub.runs.spec import LaunchMessage
from tests.support.eventually import eventually
from tests.support.nursery_launches import again, nursery_paths, proof_of, submit_agent


def ended(settings: Settings, message: LaunchMessage) -> RunView:
    def look() -> RunView | None:
        view = read_run(Layout.of(settings), message.run_id)
        return view if view.result is not None and not view.needs_reconcile else None

    return eventually(look, what="the run's end is on record")


@pytest.mark.parametrize("nursery", [True, False])
def test_a_run_completes_and_its_process_s_end_is_proven(settings: Settings, tmp_path: Path, nursery: bool) -> None:
    settings = msgspec.structs.replace(settings, nursery=nursery)
    message = submit_agent(settings, tmp_path, "go")
    launched = LocalLauncher(settings).launch_blocking(message)
    view = ended(settings, message)
    assert view.result is not None
    assert (view.state, view.result.output) == (RunState.COMPLETE, "done: go")
    proof = proof_of(settings, message)
    assert (proof.state, proof.exit_code, proof.process) == ("observed", 0, launched.process)


@pytest.mark.parametrize("nursery", [True, False])
def test_a_killed_runner_s_run_is_failed_with_the_signal_by_nobody_s_doing(
    settings: Settings, tmp_path: Path, nursery: bool
) -> None:
    settings = msgspec.structs.replace(settings, nursery=nursery)
    message = submit_agent(settings, tmp_path, "stay")
    launched = LocalLauncher(settings).launch_blocking(message)
    eventually((tmp_path / "here").exists)
    os.kill(launched.process.pid, 9)
    view = ended(settings, message)
    assert view.result is not None
    assert (view.state, view.result.reason, view.result.signal) == (RunState.FAILED, "runner-died", "SIGKILL")


def test_a_run_whose_process_ends_before_it_began_is_failed_although_its_submitter_lives(
    settings: Settings, tmp_path: Path
) -> None:
    first = submit_agent(settings, tmp_path, "go")
    LocalLauncher(settings).launch_blocking(first)
    (tmp_path / "gone").mkdir()
    message = again(submit_agent(settings, tmp_path, "go"), cwd=str(tmp_path / "gone"))
    (tmp_path / "gone").rmdir()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with connection:  # as a launcher that looked for the directory a moment earlier
        connection.connect(str(nursery_paths(settings).socket))
        memory = memory_file(encode_letter(message))
        socket.send_fds(connection, [encode_packet(request_for(message))], [memory])
        os.close(memory)
    view = ended(settings, message)
    assert view.result is not None
    assert (view.state, view.result.reason) == (RunState.FAILED, "never-started")
    assert "exit code 71" in (view.result.error or "")
    ended(settings, first)
