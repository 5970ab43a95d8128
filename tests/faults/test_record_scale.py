"""What is read of a record does not grow with the runs that have ended."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SCRIPT = """
import json, sys
from pathlib import Path
from benchmarks.record import open_session, plant
from pisub.client.views import current_view
from pisub.record.layout import Layout

layout = Layout(Path(sys.argv[1]), fsync=False)
layout.prepare()
counts = []
opened = [0]
sys.addaudithook(lambda name, _: opened.__setitem__(0, opened[0] + (name in ("open", "os.listdir", "os.scandir"))))
for more in (10, 19_990):
    run_ids = plant(layout, more)
    for look in (lambda: open_session(layout), lambda: current_view(layout, run_ids[0], now_ms=1)):
        look()  # what is read once per process
        opened[0] = 0
        look()
        counts.append(opened[0])
print(json.dumps(counts))
"""


def test_opening_a_session_and_an_exact_look_open_as_many_files_beside_20_000_finished_runs_as_beside_10(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", _SCRIPT, str(tmp_path / "state")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    session_few, look_few, session_many, look_many = json.loads(done.stdout)
    assert (session_few, look_few) == (session_many, look_many)
    assert session_many < 60
    assert look_many < 20
