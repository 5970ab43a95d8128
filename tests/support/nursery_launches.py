"""Launches for the nursery's tests: a submitted run, its message, and a launcher of a test entry."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from pisub.config import Settings
from pisub.ids import new_id
from pisub.launch import Program
from pisub.launchers.key import own_surroundings
from pisub.launchers.local import LocalLauncher
from pisub.launchers.nursery import NurseryPaths
from pisub.paths import ensure_private_dir
from pisub.process import own_identity
from pisub.record.atomic import read_record
from pisub.record.layout import Layout, RunPaths
from pisub.record.model import ProcessTerminalProof
from pisub.record.submit import submit_run
from pisub.runs.spec import AgentSnapshot, LaunchMessage, RunnerSpec, RunSpec
from tests.support.eventually import eventually

ROOT = Path(__file__).parents[2]
_AGENT = """
import time
from pathlib import Path

async def agent(child):
    Path("here").touch()
    if child.task == "stay":
        time.sleep(600)
    return "done: " + child.task
"""


def launcher(settings: Settings, entry: str) -> LocalLauncher:
    """Return a launcher whose runners do ``tests.support.nursery_entries:<entry>``."""
    # -E hides PYTHONPATH, as it does for the real program: the tree is named in the code.
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.support.nursery_main import start; start()"
    argv = (sys.executable, "-E", "-P", "-c", code, f"tests.support.nursery_entries:{entry}")
    return LocalLauncher(settings, find_program=lambda: Program(argv))


def submitted(settings: Settings, cwd: Path, *, environ: dict[str, str] | None = None) -> LaunchMessage:
    """Submit a run and return the message that launches it."""
    assert settings.home is not None
    assert settings.runtime_dir is not None
    ensure_private_dir(settings.runtime_dir)
    layout = Layout.of(settings)
    layout.prepare()
    runner = RunnerSpec(type="python", target="x:y")
    spec = RunSpec(
        run_id=new_id(),
        session_id="test",
        agent=AgentSnapshot(name="a", runner=runner),
        task="the secret task",
        cwd=str(cwd),
        submitter=own_identity(),
        submitted_at=1,
    )
    assert submit_run(layout, spec)
    keep = {name: value for name, value in os.environ.items() if name.startswith("PISUB_") or name == "PATH"}
    return LaunchMessage(
        run_id=spec.run_id,
        home=str(settings.home),
        runtime_dir=str(settings.runtime_dir),
        environ={**keep, **(environ or {})},
        cwd=str(cwd),
    )


def again(message: LaunchMessage, **changes: object) -> LaunchMessage:
    """Return a changed copy."""
    return msgspec.structs.replace(message, **changes)


def submit_agent(settings: Settings, tmp_path: Path, task: str) -> LaunchMessage:
    """Submit a run of a real python agent: it stays for the task `stay`, and returns for any other."""
    (tmp_path / "some_agent.py").write_text(_AGENT)
    message = submitted(settings, tmp_path)
    layout = Layout.of(settings)
    old = msgspec.json.decode(layout.run(message.run_id).spec.read_bytes(), type=RunSpec)
    runner = RunnerSpec(type="python", target="some_agent:agent", import_paths=(str(tmp_path),))
    run_id = message.run_id[:-1] + ("0" if message.run_id[-1] != "0" else "1")
    spec = msgspec.structs.replace(
        old, run_id=run_id, task=task, agent=msgspec.structs.replace(old.agent, runner=runner)
    )
    assert submit_run(layout, spec)
    return again(message, run_id=run_id)


def run_paths(settings: Settings, message: LaunchMessage) -> RunPaths:
    """Return the files of a launch's run."""
    return Layout.of(settings).run(message.run_id)


def proof_of(settings: Settings, message: LaunchMessage) -> ProcessTerminalProof:
    """Wait for the proof of a run's end."""
    path = run_paths(settings, message).process_terminal
    return eventually(lambda: read_record(path, ProcessTerminalProof), what=f"{path} is written")


def nursery_paths(settings: Settings) -> NurseryPaths:
    """Return where the nursery of this process's surroundings is."""
    assert settings.runtime_dir is not None
    return NurseryPaths(settings.runtime_dir, own_surroundings().key())
