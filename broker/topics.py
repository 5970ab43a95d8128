"""Who wants which published message.

Owns the subscriptions of all peers. A published message reaches a peer once, however many subscriptions fit.
"""

from __future__ import annotations

from pisub.protocol.session import TRACE_TOPIC, Subscription

from .peers import Peer

#: Receivers are remembered per topic and scope; past this many the memory starts again, so that it stays bounded.
MAX_REMEMBERED = 4_096


class Topics:
    """The table of subscriptions, with the receivers of recent topics remembered."""

    def __init__(self) -> None:
        # Insertion order is delivery order: a dict stands for an ordered set.
        self._exact: dict[str, dict[tuple[Peer, str], None]] = {}
        self._prefix: dict[str, dict[tuple[Peer, str], None]] = {}
        self._remembered: dict[tuple[str, str], tuple[Peer, ...]] = {}

    def add(self, peer: Peer, wanted: Subscription) -> None:
        """Add a subscription. Idempotent."""
        if wanted in peer.subscriptions:
            return
        peer.subscriptions.add(wanted)
        table = self._prefix if wanted.is_prefix else self._exact
        table.setdefault(wanted.topic, {})[peer, wanted.scope] = None
        self._remembered.clear()

    def remove(self, peer: Peer, unwanted: Subscription) -> None:
        """Remove a subscription. Idempotent."""
        if unwanted not in peer.subscriptions:
            return
        peer.subscriptions.discard(unwanted)
        table = self._prefix if unwanted.is_prefix else self._exact
        entries = table[unwanted.topic]
        del entries[peer, unwanted.scope]
        if not entries:
            del table[unwanted.topic]
        self._remembered.clear()

    def remove_peer(self, peer: Peer) -> None:
        """Remove all of a peer's subscriptions."""
        for each in tuple(peer.subscriptions):
            self.remove(peer, each)

    @property
    def tracers(self) -> list[Peer]:
        """Return who wants to see what passes through."""
        return [peer for peer, _ in self._exact.get(TRACE_TOPIC, ())]

    def receivers(self, topic: str, scope: str) -> tuple[Peer, ...]:
        """Return the peers that want a message published on a topic in a scope, each once."""
        found = self._remembered.get((topic, scope))
        if found is None:
            found = self._find(topic, scope)
            if len(self._remembered) >= MAX_REMEMBERED:
                self._remembered.clear()
            self._remembered[topic, scope] = found
        return found

    def _find(self, topic: str, scope: str) -> tuple[Peer, ...]:
        found: dict[Peer, None] = {}
        tables = [self._exact.get(topic, {})]
        tables.extend(entries for prefix, entries in self._prefix.items() if topic.startswith(prefix))
        for entries in tables:
            for peer, wanted in entries:
                if wanted in ("", scope):
                    found[peer] = None
        return tuple(found)
