"""How a peer that went has ended: what the broker says of it, and what the record says of its process.

The broker knows that a process is gone, never how: it is nobody's parent. The exit code and the signal of a runner are
in its run's record, where the runner's real parent wrote them. Owns bringing the two together.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from pisub.errors import PisubError
from pisub.protocol.runs import runner_address
from pisub.protocol.session import GoneReason, Terminated
from pisub.record.atomic import read_record
from pisub.record.layout import Layout
from pisub.record.model import ProcessTerminalProof

#: The parent writes what it saw before it reaps; the broker's word is there a moment earlier.
PROOF_WITHIN_S: Final = 2.0
_LOOK_EVERY_S: Final = 0.02
_RUNNER: Final = runner_address("")


class PeerEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a peer went.

    Attributes:
        address: The peer.
        reason: The broker's word.
        exit_code: Of its process, where its parent saw one.
        signal: The name of the signal that ended it, likewise.
        is_observed: Whether the process's end was seen by its parent. Without, the two above are unknown.
    """

    address: str
    reason: GoneReason
    exit_code: int | None = None
    signal: str | None = None
    is_observed: bool = False


async def end_of(layout: Layout, gone: Terminated, *, within_s: float = PROOF_WITHIN_S) -> PeerEnd:
    """Add to the broker's word what the record of a runner's run says of its process.

    Waits for the record where the process has exited, for at most ``within_s``. For a peer that is no runner, or whose
    process lives, there is nothing to add.
    """
    proof = None
    if gone.reason in (GoneReason.EXITED, GoneReason.UNKNOWN) and gone.address.startswith(_RUNNER):
        run_id = gone.address.removeprefix(_RUNNER)
        end = asyncio.get_running_loop().time() + (within_s if gone.reason is GoneReason.EXITED else 0.0)
        proof = await asyncio.to_thread(_proof, layout, run_id)
        while proof is None and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(_LOOK_EVERY_S)
            proof = await asyncio.to_thread(_proof, layout, run_id)
    if proof is None:
        return PeerEnd(address=gone.address, reason=gone.reason)
    return PeerEnd(
        address=gone.address,
        reason=gone.reason,
        exit_code=proof.exit_code,
        signal=proof.signal,
        is_observed=proof.state == "observed",
    )


def _proof(layout: Layout, run_id: str) -> ProcessTerminalProof | None:
    """Return what the parent wrote; None where there is nothing, or nothing that can be read."""
    try:
        return read_record(layout.run(run_id).process_terminal, ProcessTerminalProof)
    except PisubError:
        return None
