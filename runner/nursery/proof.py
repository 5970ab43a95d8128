"""``process-terminal.json``: what the real parent saw of a runner's end, once nothing of the run is left to end."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from pisub.errors import RecordError
from pisub.process import ProcessIdentity
from pisub.record.atomic import encode_record, read_record, write_new
from pisub.record.layout import Layout
from pisub.record.model import ProcessTerminalProof, Started

from .orphans import end_orphans, find_orphans
from .reaper import Death, proof_of


def settle(death: Death, layout: Layout, spare: Iterable[ProcessIdentity]) -> ProcessTerminalProof | None:
    """End what a killed runner left, and write how the runner ended. Idempotent: the file is create-once.

    A runner that ended by itself had its chance to clean up; what it left may be meant to stay, and is only reported.

    Args:
        death: The end, seen by the parent.
        layout: Where the run's record is.
        spare: Processes that are nobody's, although a run may have started them.

    Returns:
        The proof; None when the run is another process's. A launch that was asked for twice makes two processes, of
        which the second leaves at once, and its end is not the run's.
    """
    run_id, process = death.runner.run_id, death.runner.process
    paths = layout.run(run_id)
    started = read_record(paths.started, Started)
    if started is not None and started.process != process:
        return None
    if death.signal is None:
        are_orphans_left = bool(find_orphans(run_id, process, spare, adopted=death.adopted))
    else:
        are_orphans_left = not end_orphans(run_id, process, spare, adopted=death.adopted)
    proof = proof_of(death, are_orphans_left=are_orphans_left, now_ms=time.time_ns() // 1_000_000)
    if write_new(paths.process_terminal, encode_record(proof), fsync=False):
        return proof
    return _standing(paths.process_terminal, proof)


def _standing(path: Path, proof: ProcessTerminalProof) -> ProcessTerminalProof:
    """Return the proof that was there: it stands, an unknown one too. One that does not parse proves nothing."""
    try:
        found = read_record(path, ProcessTerminalProof)
    except RecordError:
        found = None
    if found is not None:
        return found
    return ProcessTerminalProof(
        run_id=proof.run_id, state="unknown", reason="proof-write-failed", process=proof.process
    )
