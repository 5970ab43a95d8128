from __future__ import annotations

from pathlib import Path

import pytest

from pisub.process import own_identity
from pisub.record.atomic import encode_record, write_new
from pisub.record.layout import Layout
from pisub.record.model import ProcessTerminalProof
from runner.nursery.proof import settle
from runner.nursery.reaper import Death, Runner, proof_of
from tests.support.record_samples import dead_identity, make_layout, start, submit

OURS = dead_identity()


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return make_layout(tmp_path)


def death_of(layout: Layout, run_id: str, *, signal: str | None = None) -> Death:
    runner = Runner(run_id, str(layout.root), str(layout.root), OURS)
    return Death(runner, exit_code=0 if signal is None else None, signal=signal, usage=None)


@pytest.mark.parametrize(
    ("are_orphans_left", "expected"),
    [(False, ("observed", None)), (True, ("unknown", "process-tree-unverified"))],
)
def test_an_end_is_observed_only_where_nothing_of_the_tree_was_left(
    layout: Layout, are_orphans_left: bool, expected: tuple[str, str | None]
) -> None:
    proof = proof_of(death_of(layout, submit(layout).run_id), are_orphans_left=are_orphans_left, now_ms=5)
    assert (proof.state, proof.reason) == expected


@pytest.mark.parametrize("state", ["unknown", "observed"])
def test_a_proof_that_is_there_stands_and_unknown_never_becomes_observed(layout: Layout, state: str) -> None:
    spec = submit(layout)
    start(layout, spec, OURS)
    earlier = ProcessTerminalProof(run_id=spec.run_id, state=state, reason="observer-unavailable", observed_at=1)
    write_new(layout.run(spec.run_id).process_terminal, encode_record(earlier), fsync=False)
    assert settle(death_of(layout, spec.run_id), layout, ()) == earlier


def test_a_proof_that_does_not_parse_reads_as_unknown_and_raises_nothing(layout: Layout) -> None:
    spec = submit(layout)
    start(layout, spec, OURS)
    layout.run(spec.run_id).process_terminal.write_text("no proof")
    layout.run(spec.run_id).process_terminal.chmod(0o600)
    found = settle(death_of(layout, spec.run_id), layout, ())
    assert found is not None
    assert (found.state, found.reason) == ("unknown", "proof-write-failed")


def test_another_processs_run_gets_no_proof(layout: Layout) -> None:
    spec = submit(layout)
    start(layout, spec, own_identity())
    assert settle(death_of(layout, spec.run_id), layout, ()) is None
    assert not layout.run(spec.run_id).process_terminal.exists()
