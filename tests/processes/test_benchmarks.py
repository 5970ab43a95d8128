"""Each benchmark runs, in the smallest size, prints what a reader of its JSON may rely on, and leaves nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

ROOT = Path(__file__).parents[2]
ONE_ROUND = ("--rounds", "1", "--seconds", "0.1")
RUNS = {
    "agents": (*ONE_ROUND, "--agents", "20"),
    "bus": (*ONE_ROUND, "--k", "1", "8"),
    "broker": (*ONE_ROUND, "--k", "1", "16"),
    "askers": (
        *(*ONE_ROUND, "--k", "8", "--askers", "12", "--processes", "2"),
        *("--run-rounds", "1", "--run-seconds", "0.1"),
    ),
    "rivals": (*ONE_ROUND, "--k", "1", "8"),
    "delegations": ("--count", "12", "--k", "4"),
    "launch": (*ONE_ROUND, "--k", "1", "2", "--idle", "2"),
}


class Row(msgspec.Struct):
    """What every row has; more is allowed."""

    case: str
    k: int
    per_s: float
    p50_ms: float
    p99_ms: float
    lost: int
    doubled: int
    ratio: float | None
    against: str | None


class Printed(msgspec.Struct):
    """What ``--json`` prints."""

    benchmark: str
    machine: str
    rows: list[Row]


def run(name: str, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    directory.mkdir()
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", name, *arguments],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(directory)},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )


@pytest.mark.parametrize("name", RUNS)
def test_a_benchmark_prints_its_figures_as_json_loses_nothing_and_leaves_nothing(
    name: str, private_places: Path
) -> None:
    scratch = private_places / "t"
    done = run(name, scratch, "--json", *RUNS[name])
    if "needs its load in C" in done.stderr:
        pytest.skip("no C compiler")
    assert done.returncode == 0, done.stderr
    printed = msgspec.json.decode(done.stdout, type=Printed)
    assert printed.benchmark == name
    ours = [row for row in printed.rows if "pisub" in row.case]
    assert ours
    assert {row.against for row in ours if row.ratio is not None} <= {row.case for row in printed.rows}
    assert [(row.case, row.k) for row in printed.rows if row.lost or row.doubled] == []
    assert all(row.per_s > 0 for row in printed.rows if not row.case.endswith("idle"))
    assert list(scratch.iterdir()) == []


def test_without_json_a_table_is_printed(private_places: Path) -> None:
    done = run("bus", private_places / "t", *ONE_ROUND, "--k", "1")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("bus on ")
    assert lines[2].split()[:3] == ["case", "K", "per"]
    assert any(line.startswith("pisub call") and "ratio to bare pyzmq+msgspec" in line for line in lines)


def test_a_rival_that_is_not_installed_is_named(private_places: Path) -> None:
    blocked = private_places / "blocked"
    blocked.mkdir()
    (blocked / "nats.py").write_text("raise ModuleNotFoundError(name='nats')")
    scratch = private_places / "t"
    scratch.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "rivals", "--json", *ONE_ROUND, "--k", "1", "--only", "zmq", "nats"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": str(blocked)},
        capture_output=True,
        text=True,
        check=True,
        timeout=110,
    )
    printed: dict[str, Any] = msgspec.json.decode(done.stdout)
    assert printed["skipped"] == ["nats (the package nats is not installed)"]
    assert {row["case"] for row in printed["rows"]} == {"pisub call", "zmq.asyncio"}


def test_chaos_counts_what_a_stopped_subscriber_gets_and_misses(private_places: Path) -> None:
    scratch = private_places / "t"
    done = run("chaos", scratch, "slow", "--rounds", "1", "--updates", "2000")
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = msgspec.json.decode(done.stdout)
    assert (printed["benchmark"], printed["terminal_lost"], printed["unaccounted"]) == ("chaos slow", 0, 0)
    assert printed["ratio"] > 0
    assert list(scratch.iterdir()) == []
