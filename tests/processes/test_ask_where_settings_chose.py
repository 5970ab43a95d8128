"""A script in a run reaches its runner also where the program chose the directories by settings, not by environment."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import msgspec

import pisub
from pisub.agents.trust import trust
from pisub.launch import find_broker
from pisub.launchers.nursery import nurseries
from pisub.testing import ScriptedHuman
from tests.support.leaks import end
from tests.support.loops import in_loop


@in_loop
async def test_a_script_of_a_run_asks_by_the_run_s_own_broker(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(pisub.load_settings(), home=tmp_path / "h", runtime_dir=tmp_path / "r")
    project = tmp_path / "project"
    (project / ".pisub" / "agents").mkdir(parents=True)
    (project / "ask.sh").write_text(f'"{sys.executable}" -m pisub ask "Which?"')
    front = f'name: asks\ndescription: A.\nrunner:\n  type: external-cli\n  argv: ["sh", "{project}/ask.sh"]\n'
    (project / ".pisub" / "agents" / "asks.md").write_text(f"---\n{front}---\n")
    trust(settings, project)
    try:
        async with pisub.host("s", ScriptedHuman(["left"]), settings=settings) as host:
            assert await (await host.spawn("asks", "x", project)).text() == "left\n"
    finally:
        broker = find_broker(settings)
        daemons = [*nurseries(tmp_path / "r"), *([] if broker is None else [broker.process])]
        end(daemons, signal.SIGTERM, within_s=10)
