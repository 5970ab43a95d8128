"""Eight children ask batches of three, change their minds and are killed: each token reaches its own child, alone."""

from __future__ import annotations

import argparse

import pytest

from benchmarks import bridge


@pytest.mark.timeout(300)
def test_every_token_reaches_its_own_child_and_no_two_dialogs_are_ever_shown() -> None:
    report = bridge.run(argparse.Namespace(rounds=25, seed=7))
    assert report.faults == 0, report
    assert report.batches + report.aborted + report.unseen == 8 * 25
    assert report.batches > 100, "most of them were compared by the child that asked"
    assert report.dialogs >= 3 * report.batches
    assert report.killed > 0
    assert report.aborted > 0
