"""Where a message goes: calls and their fate, replies, tells, publications.

Owns the rules of delivery. It reads the header alone; the body passes through unseen. No sockets, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pisub.protocol import codec
from pisub.protocol.delivery import Flag, Header, Kind, Priority
from pisub.protocol.limits import MAX_OPEN_CALLS, MAX_ROUTED_IDS, MAX_TOTAL_QUEUE_BYTES
from pisub.protocol.session import OWN_TOPICS, Routed

from .authority import KIND_NEEDS, ROLE_NEEDS
from .mailbox import effective_priority
from .peers import Peer, RoleKey
from .state import State

ROLE_PREFIX = "role:"
_GONE = "The callee is gone; whether it handled the call is not known. Look at the record before you repeat it."
#: What a settling broker keeps for names it does not know yet; the callers have the messages themselves, too.
MAX_PARKED_BYTES = MAX_TOTAL_QUEUE_BYTES // 4


class Parked(msgspec.Struct, frozen=True):
    """A message for a name that a fresh broker does not know yet. ``number`` is the order of arrival."""

    number: int
    sender: Peer
    header: Header
    frame: bytes
    expires_at: float


class Routing:
    """Delivers what peers send each other."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._parked: dict[RoleKey, list[Parked]] = {}
        self._parked_bytes = 0
        self._last_parked = 0

    @property
    def parked_count(self) -> int:
        """Return how many messages wait for the broker to settle."""
        return sum(map(len, self._parked.values()))

    def handle(self, sender: Peer, header: Header, frame: bytes, now: float) -> None:
        """Deliver, park or refuse one message of a peer's."""
        state = self._state
        kind = header.kind
        needed = KIND_NEEDS.get(kind)
        if needed is None:
            state.refuse(sender, header, "protocol_error", f"A client does not send kind {kind}.")
            return
        if needed & ~sender.authority:
            state.refuse(sender, header, "refused", "This peer may not send messages to others.")
            return
        if ROLE_NEEDS.get(header.to, 0) & ~sender.authority:
            state.counters["refused_asks"] += 1
            state.refuse(sender, header, "refused", "This peer may not ask the human: its agent is not granted it.")
            return
        if not Priority.CONTROL <= header.priority <= Priority.DROPPABLE:
            state.refuse(sender, header, "protocol_error", f"There is no class {header.priority}.")
            return
        if header.fence is not None and not state.holds(sender, header.fence):
            state.refuse(sender, header, "stale_generation", "The sender no longer holds the role it speaks for.")
            if kind in (Kind.REPLY, Kind.FAIL):
                self._fail_stale_reply(sender, header)
            return
        if kind == Kind.CALL:
            self._call(sender, header, frame, now)
        elif kind in (Kind.REPLY, Kind.FAIL):
            self._reply(sender, header, frame)
        elif kind == Kind.PUBLISH:
            self._publish(sender, header, frame)
        else:
            self._tell(sender, header, frame, now)

    # Calls -------------------------------------------------------------------------------------------------------

    def _call(self, caller: Peer, header: Header, frame: bytes, now: float) -> None:
        state = self._state
        number = header.message_id
        if number <= 0:
            state.refuse(caller, header, "protocol_error", "A call needs a message id of 1 or more.")
            return
        is_role = header.to.startswith(ROLE_PREFIX)
        known = caller.calls.get(number)
        if known is not None:  # a resend: to the same callee, whoever holds the role by now
            callee: Peer | None = known[0]
        else:
            callee = self.find(header)
            if callee is None:
                self._nobody(caller, header, frame, now)
                return
            if len(caller.calls) >= MAX_OPEN_CALLS:
                state.refuse(caller, header, "refused", f"A peer can have {MAX_OPEN_CALLS} open calls.")
                return
            deadline = now + header.ttl_ms / 1000 if header.ttl_ms > 0 else 0.0
            caller.calls[number] = (callee, deadline)
            callee.serving += 1
        assert callee is not None
        if is_role:
            self.tell_routed(caller, (number,), callee)
        state.deliver(callee, caller.stamp, frame, Kind.CALL, effective_priority(Kind.CALL, header.priority))

    def tell_routed(self, caller: Peer, numbers: Sequence[int], callee: Peer, *, flags: int = 0) -> None:
        """Tell a caller which life of which peer has its calls.

        Args:
            caller: Who made them.
            numbers: Their message ids, one or more.
            callee: Who has them.
            flags: ``Flag.AGAIN``, or none.
        """
        state = self._state
        for start in range(0, len(numbers), MAX_ROUTED_IDS):
            first, *others = numbers[start : start + MAX_ROUTED_IDS]
            routed = Header(
                kind=Kind.ROUTED, priority=Priority.CONTROL, correlation_id=first, to=callee.bound_name, flags=flags
            )
            body = codec.encode(Routed(message_ids=tuple(others))) if others else b""
            state.deliver(caller, state.own_stamp, codec.pack(routed, body), Kind.ROUTED, Priority.CONTROL)

    def tell_all_routed(self, routed: dict[tuple[Peer, Peer], list[int]]) -> None:
        """Tell the callers of a batch, by caller and callee; not one that has said goodbye meanwhile."""
        for (caller, callee), numbers in routed.items():
            if self._state.peers.get(caller.address) is caller:
                self.tell_routed(caller, numbers, callee)

    def remind_callers(self, callee: Peer) -> None:
        """Tell who waits for a callee that came back where the call is bound: it may be lost, and is to be sent again.

        What was in the pipe when the connection broke is gone, and nobody can say what that was. The callee knows a
        repeat by its id.
        """
        if callee.serving:
            for caller in self._state.peers.values():
                numbers = [each for each, call in caller.calls.items() if call[0] is callee]
                if numbers:
                    self.tell_routed(caller, numbers, callee, flags=Flag.AGAIN)

    def _nobody(self, caller: Peer, header: Header, frame: bytes, now: float) -> None:
        state = self._state
        if self._park(caller, header, frame, now):
            return
        if "@" in header.to:
            state.counters["outcome_unknown"] += 1
            state.fail(caller, header.message_id, "outcome_unknown", _GONE)
        else:
            state.counters["not_delivered"] += 1
            state.fail(caller, header.message_id, "not_delivered", f"Nobody is at {header.to!r}. Nothing was sent.")

    def _reply(self, callee: Peer, header: Header, frame: bytes) -> None:
        state = self._state
        caller = self._caller(header)
        call = None if caller is None else caller.calls.get(header.correlation_id)
        if caller is None or call is None or call[0] is not callee:
            state.counters["unmatched_replies"] += 1
            return
        state.end_call(caller, header.correlation_id)
        state.deliver(caller, callee.stamp, frame, header.kind, effective_priority(header.kind, header.priority))
        if header.topic and not header.topic.startswith(OWN_TOPICS):
            for observer in state.topics.receivers(header.topic, header.scope):
                if observer is not caller:
                    state.deliver(observer, callee.stamp, frame, Kind.PUBLISH, header.priority)

    def _caller(self, header: Header) -> Peer | None:
        """Return whom a reply is for: another life of that address has calls with the same ids."""
        address, at, incarnation = header.to.partition("@")
        caller = self._state.peers.get(address)
        return caller if caller is None or not at or str(caller.incarnation) == incarnation else None

    def _fail_stale_reply(self, callee: Peer, header: Header) -> None:
        caller = self._caller(header)
        call = None if caller is None else caller.calls.get(header.correlation_id)
        if caller is not None and call is not None and call[0] is callee:
            self._state.end_call(caller, header.correlation_id)
            self._state.fail(caller, header.correlation_id, "outcome_unknown", "The callee lost its role meanwhile.")

    def expire(self, now: float) -> None:
        """End the calls whose time is over."""
        for caller in list(self._state.peers.values()):
            if not caller.calls:
                continue
            for number in [each for each, call in caller.calls.items() if 0.0 < call[1] <= now]:
                self._state.end_call(caller, number)
                self._state.counters["call_timeouts"] += 1
                self._state.fail(caller, number, "call_timeout", "The call's time is over; the callee may go on.")

    # Tells and publications --------------------------------------------------------------------------------------

    def _tell(self, sender: Peer, header: Header, frame: bytes, now: float) -> None:
        if header.kind == Kind.DONE and header.correlation_id:  # the caller waits for that call no more
            self._state.end_call(sender, header.correlation_id)
        receiver = self.find(header)
        if receiver is not None:
            self._state.deliver(receiver, sender.stamp, frame, header.kind, header.priority)
        elif header.kind != Kind.TELL or not self._park(sender, header, frame, now):
            self._state.counters["undeliverable"] += 1

    def _publish(self, sender: Peer, header: Header, frame: bytes) -> None:
        state = self._state
        if not header.topic:
            state.refuse(sender, header, "protocol_error", "A publication needs a topic.")
            return
        if header.topic.startswith(OWN_TOPICS):
            state.refuse(sender, header, "refused", "The broker alone publishes on this topic.")
            return
        receivers = state.topics.receivers(header.topic, header.scope)
        for receiver in receivers:
            state.deliver(receiver, sender.stamp, frame, Kind.PUBLISH, header.priority)
        if header.to:
            addressee = self.find(header)
            if addressee is None:
                state.counters["undeliverable"] += 1
            elif addressee not in receivers:
                state.deliver(addressee, sender.stamp, frame, Kind.PUBLISH, header.priority)

    def find(self, header: Header) -> Peer | None:
        """Return the peer that a message is for: by address, by role and scope, or by address and incarnation."""
        to = header.to
        peer = self._state.peers.get(to)
        if peer is not None:
            return peer
        if to.startswith(ROLE_PREFIX):
            return self._state.roles.holder((to[len(ROLE_PREFIX) :], header.scope))
        address, at, incarnation = to.partition("@")
        if at:
            peer = self._state.peers.get(address)
            if peer is not None and str(peer.incarnation) == incarnation:
                return peer
        return None

    # Parking -----------------------------------------------------------------------------------------------------

    def _park(self, sender: Peer, header: Header, frame: bytes, now: float) -> bool:
        state = self._state
        if state.is_settled or self._parked_bytes + len(frame) > MAX_PARKED_BYTES:
            return False
        address, at, _ = header.to.partition("@")
        if at and address in state.peers:  # another life of that address is here: this one will not come back
            return False
        expires_at = now + header.ttl_ms / 1000 if header.ttl_ms > 0 else 0.0
        self._last_parked += 1
        parked = Parked(self._last_parked, sender, header, frame, expires_at)
        self._parked.setdefault(_name(header), []).append(parked)
        self._parked_bytes += len(frame)
        state.counters["parked"] += 1
        return True

    def unpark(self, name: RoleKey, now: float) -> None:
        """Deliver what was parked for a role and scope, or for an address (with the scope '')."""
        for each in self._parked.pop(name, ()):
            self._try_again(each, now)

    def unpark_all(self, now: float) -> None:
        """The broker has settled: deliver or fail everything that was parked, in the order in which it came."""
        everything = sorted((each for some in self._parked.values() for each in some), key=lambda each: each.number)
        self._parked.clear()
        for each in everything:
            self._try_again(each, now)

    def _try_again(self, parked: Parked, now: float) -> None:
        self._parked_bytes -= len(parked.frame)
        if self._state.peers.get(parked.sender.address) is not parked.sender:
            return  # its sender went meanwhile
        if parked.expires_at and parked.expires_at <= now:
            self._expire_parked(parked)
        elif parked.header.kind == Kind.CALL:
            self._call(parked.sender, parked.header, parked.frame, now)
        else:
            self._tell(parked.sender, parked.header, parked.frame, now)

    def _expire_parked(self, parked: Parked) -> None:
        if parked.header.kind == Kind.CALL:
            self._state.fail(parked.sender, parked.header.message_id, "not_delivered", "Nobody came in time.")


def _name(header: Header) -> RoleKey:
    if header.to.startswith(ROLE_PREFIX):
        return header.to[len(ROLE_PREFIX) :], header.scope
    return header.to.partition("@")[0], ""
