"""The tables that the parts of the core share, and the one way to hand a message to a peer.

Owns: peers, roles, topics, watches, counters, and what is to be sent. Decides nothing about a message's rights or
destination; that is in ``routing``, ``admission`` and ``control``.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from pisub.errors import FrameTooLargeError
from pisub.process import ProcessIdentity
from pisub.protocol import codec
from pisub.protocol.base import Message
from pisub.protocol.delivery import Fence, Header, Kind, Priority, Stamp
from pisub.protocol.limits import IDLE_EXIT_S, MAX_TOTAL_QUEUE_BYTES, SETTLE_S
from pisub.protocol.session import Failure, GoneReason, RoleGranted, Terminated

from .effects import Disconnect, Effect, Outcome, Send, Suspended
from .events import Accepted
from .mailbox import effective_priority
from .peers import Peer, RoleKey
from .roles import Roles
from .topics import Topics


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds and times of a broker that tests make small."""

    settle_s: float = SETTLE_S
    idle_exit_s: float = IDLE_EXIT_S
    total_queue_bytes: int = MAX_TOTAL_QUEUE_BYTES


class Stranger(msgspec.Struct):
    """A connection that has not said Hello, or has said goodbye."""

    accepted: Accepted
    since: float
    said_goodbye: bool = False


class State:
    """What the broker knows.

    Attributes:
        by_route: Connected peers by their connection.
        peers: All peers by address, also those whose connection is lost.
        lives: The same by address and incarnation, as replies and bound calls name them.
        strangers: Connections without a peer.
        accepted: The kernel's word on every connection, peers' included.
        watchers: Who wants to know when an address goes, and of which life; 0 is the one that comes first.
        runners: Sessions of processes that are, or were, runners and live: their descendants are children.
        sends: What this turn sends, in order.
    """

    def __init__(self, *, epoch: str, broker: ProcessIdentity, software: str, limits: Limits, now: float) -> None:
        self.epoch = epoch
        self.broker = broker
        self.software = software
        self.limits = limits
        self.started_at = now
        self.settled_at = now + limits.settle_s
        self.is_settled = limits.settle_s <= 0
        self.by_route: dict[bytes, Peer] = {}
        self.peers: dict[str, Peer] = {}
        self.lives: dict[str, Peer] = {}
        self.strangers: dict[bytes, Stranger] = {}
        self.accepted: dict[bytes, Accepted] = {}
        self.roles = Roles()
        self.topics = Topics()
        self.watchers: dict[str, dict[Peer, int]] = {}
        self.runners: dict[ProcessIdentity, str] = {}
        self.by_process: dict[ProcessIdentity, dict[Peer, None]] = {}
        self.suspended: dict[bytes, Peer] = {}
        self.counters: Counter[str] = Counter()
        self.received = 0
        self.queued_bytes = 0
        self.is_leaving = False
        #: Connections whose clients read bundles.
        self.bundling: set[bytes] = set()
        self.sends: list[Send] = []
        self.effects: list[Effect] = []
        self.own_stamp = codec.pack_stamp(Stamp(epoch=epoch))

    def take(self) -> Outcome:
        """Return what is to be done, and begin anew."""
        outcome = Outcome(self.sends, self.effects)
        self.sends = []
        self.effects = []
        return outcome

    # Handing over ------------------------------------------------------------------------------------------------

    def deliver(self, peer: Peer, stamp: bytes, frame: bytes, kind: int, priority: int) -> None:
        """Hand a message to a peer: at once, or by its mailbox."""
        if not peer.is_slow and peer.route is not None:
            self.sends.append((peer.route, stamp, frame))
        else:
            self._deliver_slowly(peer, stamp, frame, kind, priority)

    def _deliver_slowly(self, peer: Peer, stamp: bytes, frame: bytes, kind: int, priority: int) -> None:
        mailbox = peer.mailbox
        if peer.route is not None and not peer.is_suspended:  # only a gap to tell of
            self.sends.append((peer.route, mailbox.tell_gap(stamp), frame))
            peer.refresh_pace()
            return
        if priority >= Priority.DROPPABLE and (peer.route is None or not mailbox.has_room_for_droppable):
            mailbox.drop()
            self.counters["dropped"] += 1
            return
        before = mailbox.queued_bytes
        mailbox.put(stamp, frame, kind=kind, priority=priority)
        self.queued_bytes += mailbox.queued_bytes - before
        if mailbox.is_over_limit:
            self.cut_off(peer)
        while self.queued_bytes > self.limits.total_queue_bytes:
            debtor = max(self.peers.values(), key=lambda each: each.mailbox.queued_bytes)
            self.cut_off(debtor)
            if self.queued_bytes > self.limits.total_queue_bytes:  # its essential messages alone are too much
                self.queued_bytes -= debtor.mailbox.queued_bytes
                self.counters["dropped_at_bound"] += len(debtor.mailbox)
                debtor.mailbox.clear()

    def send_failed(self, peer: Peer, stamp: bytes, frame: bytes) -> None:
        """A send to a peer found its pipe full, or its connection gone: queue it, and everything after it."""
        if peer.route is not None and not peer.is_suspended:
            self.suspend(peer.route, peer)
            self.counters["suspensions"] += 1
            peer.refresh_pace()
        header, _ = codec.unpack(frame)
        priority = effective_priority(header.kind, header.priority)
        if priority >= Priority.DROPPABLE and not peer.mailbox.has_room_for_droppable:
            peer.mailbox.drop(codec.unpack_stamp(stamp).dropped)  # a gap that this message would have told of
        self._deliver_slowly(peer, stamp, frame, header.kind, priority)

    def handed_over(self, peer: Peer, count: int) -> None:
        """The mailbox's first messages were sent."""
        before = peer.mailbox.queued_bytes
        peer.mailbox.pop(count)
        self.queued_bytes += peer.mailbox.queued_bytes - before
        if not len(peer.mailbox):
            self.resume(peer)

    def suspend(self, route: bytes, peer: Peer) -> None:
        """Something waits for the peer: whatever comes is queued behind it."""
        peer.is_suspended = True
        self.suspended[route] = peer
        self.effects.append(Suspended(route))

    def resume(self, peer: Peer) -> None:
        """Nothing waits for the peer: send to it directly again."""
        if peer.route is not None:
            self.suspended.pop(peer.route, None)
        peer.is_suspended = False
        peer.refresh_pace()

    def cut_off(self, peer: Peer) -> None:
        """Break the connection of a peer that does not read. It stays who it is while its process lives."""
        self.counters["cut_off"] += 1
        before = peer.mailbox.queued_bytes
        self.counters["dropped_at_bound"] += peer.mailbox.keep_essential()
        self.queued_bytes += peer.mailbox.queued_bytes - before
        peer.needs_resync = True
        if peer.route is not None:
            self.effects.append(Disconnect(peer.route))
            self.detach(peer)
            peer.was_cut_off = True
            peer.resume_by = None if peer.process is not None else self.started_at  # nobody would say that it died

    def detach(self, peer: Peer) -> None:
        """The peer has no connection now."""
        route = peer.route
        if route is None:
            return
        del self.by_route[route]
        self.bundling.discard(route)
        self.suspended.pop(route, None)
        peer.route = None
        peer.is_suspended = False
        peer.refresh_pace()

    # The broker's own messages -----------------------------------------------------------------------------------

    def send_own(self, peer: Peer, kind: int, message: Message, *, correlation_id: int = 0) -> None:
        """Send a message of the broker's own to a peer."""
        frame = own_frame(kind, message, correlation_id=correlation_id)
        self.deliver(peer, self.own_stamp, frame, kind, Priority.CONTROL)

    def send_stranger(self, route: bytes, kind: int, message: Message, *, correlation_id: int = 0) -> None:
        """Send a message of the broker's own to a connection that is no peer."""
        self.sends.append((route, self.own_stamp, own_frame(kind, message, correlation_id=correlation_id)))

    def fail(self, peer: Peer, correlation_id: int, code: str, message: str) -> None:
        """Tell a peer why there will be no reply."""
        self.send_own(peer, Kind.FAIL, Failure(code=code, message=message), correlation_id=correlation_id)

    def refuse(self, peer: Peer, header: Header, code: str, message: str) -> None:
        """Count a refused message, and say so to a sender that waits or may want to know."""
        self.counters[f"refused_{code}"] += 1
        if header.kind == Kind.CALL:  # sent again: its caller takes the refusal for the end of the first, too
            self.end_call(peer, header.message_id)
        if header.message_id and header.kind in (Kind.CALL, Kind.CONTROL, Kind.TELL, Kind.PUBLISH, Kind.HELLO):
            self.fail(peer, header.message_id, code, message)

    # Changes that others are told of -----------------------------------------------------------------------------

    def end_call(self, caller: Peer, message_id: int) -> Peer | None:
        """Forget an open call; returns its callee, or None if there is no such call."""
        found = caller.calls.pop(message_id, None)
        if found is None:
            return None
        found[0].serving -= 1
        return found[0]

    def fail_calls_to(self, callee: Peer, message: str) -> None:
        """End every call that is bound to a peer, with ``outcome_unknown``."""
        if not callee.serving:
            return
        for caller in list(self.peers.values()):
            for message_id in [number for number, call in caller.calls.items() if call[0] is callee]:
                self.end_call(caller, message_id)
                self.fail(caller, message_id, "outcome_unknown", message)

    def release_role(self, peer: Peer, key: RoleKey, now: float) -> None:
        """Take a role from a peer and give it to the next."""
        self.roles.release(peer, key, now)
        self.grant_waiting(key)

    def grant_waiting(self, key: RoleKey) -> None:
        """Give a vacant role to who waits for it, and tell it. A broker that settles waits for the old holder."""
        if not self.is_settled:
            return
        role = self.roles.grant_next(key)
        if role is not None and role.holder is not None:
            granted = RoleGranted(role=key[0], scope=key[1], generation=role.generation)
            self.send_own(role.holder, Kind.TELL, granted)

    def holds(self, peer: Peer, fence: Fence) -> bool:
        """Tell whether a peer holds the role that a fence names, under this broker."""
        return fence.epoch == self.epoch and fence.generation in peer.generations

    def watch(self, peer: Peer, address: str, incarnation: int) -> None:
        """Tell a peer when an address goes, or that life of it, if it is not 0.

        At once if another life is there, or none and the broker is settled.
        """
        there = self.peers.get(address)
        if self.is_settled if there is None else incarnation not in (0, there.incarnation):
            gone = Terminated(address=address, reason=GoneReason.UNKNOWN, incarnation=incarnation)
            self.send_own(peer, Kind.TELL, gone)
            return
        self.watchers.setdefault(address, {})[peer] = incarnation
        peer.watches.add(address)

    def unwatch(self, peer: Peer, address: str) -> None:
        """No longer tell it. Idempotent."""
        peer.watches.discard(address)
        watchers = self.watchers.get(address)
        if watchers is not None:
            watchers.pop(peer, None)
            if not watchers:
                del self.watchers[address]

    def tell_watchers(self, address: str, reason: GoneReason, incarnation: int = 0) -> None:
        """Tell everybody who watches an address that it went, once each; without an incarnation, the one each meant."""
        for watcher, wanted in self.watchers.pop(address, {}).items():
            watcher.watches.discard(address)
            gone = Terminated(address=address, reason=reason, incarnation=incarnation or wanted)
            self.send_own(watcher, Kind.TELL, gone)

    def tell_outlived(self, address: str, incarnation: int) -> None:
        """A life of an address is here: tell who watches an earlier one, which ended while no broker saw it."""
        for watcher, wanted in list(self.watchers.get(address, {}).items()):
            if wanted not in (0, incarnation):
                self.unwatch(watcher, address)
                gone = Terminated(address=address, reason=GoneReason.UNKNOWN, incarnation=wanted)
                self.send_own(watcher, Kind.TELL, gone)


def own_frame(kind: int, message: Message, *, correlation_id: int = 0) -> bytes:
    """Encode a message of the broker's own; one that is too large becomes a Failure that says so."""
    try:
        body = codec.encode(message)
    except FrameTooLargeError as error:
        kind, body = Kind.FAIL, codec.encode(Failure(code=error.code, message=error.message))
    return codec.pack(Header(kind=kind, priority=Priority.CONTROL, correlation_id=correlation_id), body)
