"""The broker's figures, for ``pisub broker status``.

Owns what is reported and how much of it. Reads the tables, changes nothing.
"""

from __future__ import annotations

from pisub.protocol.session import PeerStatus, RoleHolder, StatusReport
from pisub.protocol.version import WIRE_VERSIONS

from .state import State

#: Peers and roles that one report lists: 256 of each are some 80 KB, well inside a body; the counters count all.
MAX_LISTED = 256


def report(state: State, now: float, *, parked: int) -> StatusReport:
    """Return the figures as they are now, the busiest peers first."""
    peers = sorted(state.peers.values(), key=lambda peer: (-peer.mailbox.queued_bytes, peer.address))
    held = [(key, role) for key, role in state.roles.items() if role.holder is not None]
    gauges = {
        "received": state.received,
        "peers": len(state.peers),
        "connections": len(state.accepted),
        "roles_held": len(held),
        "queued_bytes": state.queued_bytes,
        "parked_now": parked,
        "suspended_now": len(state.suspended),
    }
    return StatusReport(
        epoch=state.epoch,
        pid=state.broker.pid,
        uptime_ms=round((now - state.started_at) * 1000),
        wire_version=WIRE_VERSIONS[0],
        software=state.software,
        peers=tuple(
            PeerStatus(
                address=peer.address,
                kind=peer.kind.value,
                pid=0 if peer.process is None else peer.process.pid,
                session=peer.session,
                authority=peer.authority,
                is_connected=peer.route is not None,
                is_suspended=peer.is_suspended,
                queued_messages=len(peer.mailbox),
                queued_bytes=peer.mailbox.queued_bytes,
                dropped=peer.mailbox.dropped,
                open_calls=len(peer.calls),
            )
            for peer in peers[:MAX_LISTED]
        ),
        roles=tuple(
            RoleHolder(role=key[0], scope=key[1], address=role.holder.address, generation=role.generation)
            for key, role in held[:MAX_LISTED]
            if role.holder is not None
        ),
        open_calls=sum(len(peer.calls) for peer in state.peers.values()),
        counters={**state.counters, **gauges},
    )
