"""The fleet status and the snapshot of version 1, byte for byte: what clients were promised.

``python -m tests.golden.test_fleet_golden`` writes the file anew; a change of what is there breaks clients.
"""

from pathlib import Path

import msgspec

from pisub.fleet import FleetKeys, build_fleet, build_snapshot
from pisub.fleet.jobs import Activity
from pisub.protocol.fleet import Capacity, FleetTokens
from tests.support.fleet_jobs import NOW_MS, SESSION, job, step

GOLDEN = Path(__file__).with_name("fleet_v1.json")

JOBS = [
    job(
        "run-1",
        step(0, "scout\x1b[31m", model="m-1", effort="high", tokens=FleetTokens(input=10, output=5), role="reader"),
        step(1, "reviewer", status="complete", ended_at=NOW_MS + 50),
        mode="parallel",
        goal="look at the parser",
        updated_at=NOW_MS + 90,
        activity=Activity(state="active_long_running", current_tool="read", last_activity_at=NOW_MS + 80, tool_count=3),
        children=(job("run-3", step(agent="helper"), updated_at=NOW_MS + 60),),
    ),
    job("run-2", state="queued", agents=("a", "b", "c", "d"), started_at=NOW_MS - 5),
    job("run-4", step(status="failed", ended_at=NOW_MS + 70), state="failed", updated_at=NOW_MS + 70),
    job("run-5", step(), session_id="another"),
]


def written() -> bytes:
    documents = {
        "fleet": build_fleet(JOBS, SESSION, FleetKeys(), Capacity(used=2, limit=20)),
        "asyncSnapshot": build_snapshot(JOBS, SESSION, generated_at=NOW_MS + 100),
    }
    return msgspec.json.format(msgspec.json.encode(documents), indent=2) + b"\n"


def test_the_fleet_and_the_snapshot_are_as_ever() -> None:
    assert written() == GOLDEN.read_bytes()


if __name__ == "__main__":
    GOLDEN.write_bytes(written())
