"""The broker's figures, for ``pisub broker status``.

Owns what is reported and how much of it. Reads the tables, changes nothing.
"""

from __future__ import annotations

from collections import deque

from pisub.protocol.session import PeerStatus, RoleHolder, StatusReport
from pisub.protocol.version import WIRE_VERSIONS

from .state import State

#: Peers and roles that one report lists: 128 of each are some 40 KB, well inside a body; the counters count all.
MAX_LISTED = 128
#: How often the counters are looked at, and how many looks are remembered.
SAMPLE_S = 1.0
SAMPLES = 11


class Rates:
    """Messages per second, over the last ten seconds or so."""

    def __init__(self, state: State, now: float) -> None:
        self._state = state
        self._samples: deque[tuple[float, dict[str, int]]] = deque([(now, self._sample())], maxlen=SAMPLES)

    def _sample(self) -> dict[str, int]:
        counters = self._state.counters
        refused = sum(count for name, count in counters.items() if name.startswith("refused_"))
        return {"received": self._state.received, "refused": refused, "dropped": counters["dropped"]}

    def note(self, now: float) -> None:
        """Look once a second; called more often it does nothing."""
        if now - self._samples[-1][0] >= SAMPLE_S:
            self._samples.append((now, self._sample()))

    def now(self, now: float) -> dict[str, int]:
        """Return the rates; none in the first moment of a broker."""
        at, before = self._samples[0]
        if now - at < SAMPLE_S / 2:
            return {}
        return {name: round((count - before[name]) / (now - at)) for name, count in self._sample().items()}


def report(state: State, now: float, *, parked: int, rates: Rates) -> StatusReport:
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
        rates=rates.now(now),
    )
