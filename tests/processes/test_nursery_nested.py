"""A detached run that a run launches outlives it, however either was launched, and so does a nursery it started."""

from pathlib import Path
from signal import SIGKILL

import msgspec
import pytest

from pisub.config import Settings
from pisub.launchers.local import LocalLauncher
from pisub.launchers.protocol import encode_letter
from pisub.process import Liveness, liveness, send_signal
from pisub.protocol.runs import RunState
from pisub.record.atomic import read_record
from pisub.record.layout import Layout
from pisub.record.model import Started
from pisub.record.reader import read_run
from pisub.runs.spec import LaunchMessage
from tests.support.eventually import eventually
from tests.support.nursery_launches import proof_of, run_paths, submit_agent

PARENT = """
import sys
from pathlib import Path
from pisub.config import load_settings
from pisub.launchers.local import LocalLauncher
from pisub.launchers.protocol import decode_letter

async def agent(child):
    letter, nursery = child.task.split(" ")
    message = decode_letter(bytes.fromhex(letter))
    settings = load_settings(home=message.home, runtime_dir=message.runtime_dir, nursery=nursery)
    return (await LocalLauncher(settings).launch(message)).via
"""


@pytest.mark.parametrize(("parent_way", "nested_way"), [(True, False), (False, False), (False, True)])
def test_a_nested_run_goes_on_when_its_parent_has_ended(
    settings: Settings, tmp_path: Path, parent_way: bool, nested_way: bool
) -> None:
    nested_dir, parent_dir = tmp_path / "nested", tmp_path / "parent"
    nested_dir.mkdir()
    parent_dir.mkdir()
    nested = submit_agent(settings, nested_dir, "stay")
    task = f"{encode_letter(nested).hex()} {str(nested_way).lower()}"
    parent = submit_agent(settings, parent_dir, task)
    (parent_dir / "some_agent.py").write_text(PARENT)
    LocalLauncher(msgspec.structs.replace(settings, nursery=parent_way)).launch_blocking(parent)

    assert proof_of(settings, parent).exit_code == 0
    assert output(settings, parent) == ("nursery" if nested_way else "exec")
    eventually((nested_dir / "here").exists)
    started = read_record(run_paths(settings, nested).started, Started)
    assert started is not None
    assert liveness(started.process) is Liveness.ALIVE
    assert read_run(Layout.of(settings), nested.run_id).state is RunState.RUNNING
    stop(settings, nested, started)


def output(settings: Settings, message: LaunchMessage) -> str:
    result = read_run(Layout.of(settings), message.run_id).result
    assert result is not None
    assert result.state is RunState.COMPLETE, result.error
    return result.output


def stop(settings: Settings, message: LaunchMessage, started: Started) -> None:
    """Kill the nested runner: that its end is on record shows that its keeper lived on as well."""
    assert send_signal(started.process, SIGKILL)
    assert proof_of(settings, message).signal == "SIGKILL"
