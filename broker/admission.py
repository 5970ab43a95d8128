"""Who comes and who goes: Hello, goodbye, lost connections, deaths.

Owns the life of a peer and what its end means for others. No sockets, no clock.
"""

from __future__ import annotations

from pisub.errors import IdentityInUseError, InvalidArgumentError, PisubError, ProtocolError, RefusedError
from pisub.ids import is_address, is_role, parse_life
from pisub.process import ProcessIdentity
from pisub.protocol import bundle, codec
from pisub.protocol.checkpoint import CHILD_PREFIX
from pisub.protocol.delivery import Header, Kind
from pisub.protocol.limits import HELLO_TIMEOUT_S, MAX_SUBSCRIPTIONS, MAX_WATCHES, RESUME_GRACE_S
from pisub.protocol.session import (
    TRACE_TOPIC,
    Authority,
    Failure,
    GoneReason,
    HeldRole,
    Hello,
    PeerKind,
    Subscription,
    Welcome,
)
from pisub.protocol.version import negotiate

from .authority import grant_of_process, granted, narrowed
from .effects import Disconnect, Forget, UnwatchProcess, WatchProcess
from .events import Accepted
from .peers import Peer
from .routing import Routing
from .state import State, Stranger, own_frame

RUNNER_PREFIX = "run:"
_READ_REASON_S = 0.5
_CALLEE_LOST = "The callee went away; whether it handled the call is not known. Look at the record first."


class Admission:
    """Lets peers in and out."""

    def __init__(self, state: State, routing: Routing) -> None:
        self._state = state
        self._routing = routing

    # Coming ------------------------------------------------------------------------------------------------------

    def accept(self, accepted: Accepted, now: float) -> None:
        """Remember what the kernel says about a new connection."""
        self._state.accepted[accepted.route] = accepted
        self._state.strangers[accepted.route] = Stranger(accepted, now)

    def hello(self, route: bytes, header: Header, body: bytes, now: float) -> None:
        """Let the other end of a connection in, or tell it why not."""
        state = self._state
        accepted = state.accepted.get(route)
        try:
            hello = codec.decode(body, Hello)
            version = negotiate(hello.wire_versions)
            if accepted is None:
                raise ProtocolError("The connection is unknown: connect again.")
            address = self._check(hello, accepted)
            peer, is_resumed = self._attach(hello, accepted, address, now)
        except PisubError as error:
            state.counters[f"refused_{error.code}"] += 1
            failure = Failure(code=error.code, message=error.message, field=error.field)
            state.send_stranger(route, Kind.FAIL, failure, correlation_id=header.message_id)
            if accepted is not None and not accepted.is_same_user:
                state.effects.append(Disconnect(route))
            elif accepted is not None and accepted.is_full and route in state.strangers:
                # Its descriptor is needed, but it should have read the reason first.
                state.strangers[route].since = now + _READ_REASON_S - HELLO_TIMEOUT_S
            return
        if hello.kind is PeerKind.RUNNER and peer.process is not None:
            # A child that calls itself a runner opens no other session to its own children.
            session = hello.session if peer.confined_to is None else peer.confined_to
            self._confine_children(peer.process, session, now)
            if not peer.authority & Authority.ASK:
                self._forbid_asking(peer.process)
        place = len(state.sends)  # the Welcome goes before whatever restating what it holds brings the peer
        self._restate(peer, hello, now)
        welcome = Welcome(
            wire_version=version,
            address=peer.address,
            epoch=state.epoch,
            broker=state.broker,
            authority=peer.authority,
            capabilities=(bundle.CAPABILITY,),
            software=state.software,
            roles=tuple(
                HeldRole(role=key[0], scope=key[1], generation=generation) for key, generation in peer.roles.items()
            ),
            resync=is_resumed,
        )
        frame = own_frame(Kind.WELCOME, welcome, correlation_id=header.message_id)
        state.sends.insert(place, (route, state.own_stamp, frame))
        peer.refresh_pace()
        if is_resumed:
            self._routing.remind_callers(peer)
        self._routing.unpark((peer.address, ""), now)
        for key in peer.roles:
            self._routing.unpark(key, now)

    def _check(self, hello: Hello, accepted: Accepted) -> str:
        if accepted.is_full:
            raise PisubError("The broker has no descriptor left for another peer.", code="too_many_peers")
        if not accepted.is_same_user:
            raise RefusedError("This broker belongs to another user.")
        address = hello.address or f"{hello.kind.value}:{accepted.pid}-{hello.incarnation & 0xFFFFFFFFFFFFFFFF:x}"
        if not is_address(address) or address.startswith("role:"):
            raise InvalidArgumentError("An address has 1 to 128 letters, digits and . _ : -", field="address")
        is_runner = hello.kind is PeerKind.RUNNER
        if is_runner != address.startswith(RUNNER_PREFIX):
            raise RefusedError("Addresses that begin with 'run:' are runners', and runners have no other.")
        if address.startswith(CHILD_PREFIX) and address.partition("-")[0] != f"{CHILD_PREFIX}{accepted.pid}":
            raise RefusedError("An address that begins with 'child:' says the pid of its own process, and a dash.")
        if is_runner and hello.process.pid != accepted.pid:
            raise RefusedError("A runner speaks for its own process only.")
        return address

    def _attach(self, hello: Hello, accepted: Accepted, address: str, now: float) -> tuple[Peer, bool]:
        state = self._state
        before = state.by_route.get(accepted.route)
        if before is not None and before.address != address:
            raise ProtocolError("This connection already has an address.")
        holder = state.peers.get(address)
        is_resumed = False
        if holder is not None:
            is_same_process = holder.process is not None and holder.process == accepted.process
            is_unknown_again = holder.process is None and accepted.process is None and holder.route is None
            is_older = hello.incarnation < holder.incarnation
            if not (is_same_process or is_unknown_again) or is_older:
                raise IdentityInUseError(f"{address} belongs to another live client.")
            if holder.route is not None and holder.route != accepted.route:
                state.effects.append(Disconnect(holder.route))
                state.detach(holder)
            is_resumed = holder.incarnation == hello.incarnation
            if not is_resumed:
                self.end(holder, GoneReason.LOST, now)
        if is_resumed and holder is not None:
            peer = holder
        else:
            peer = Peer(
                address,
                hello.incarnation,
                kind=hello.kind,
                session=hello.session,
                process=accepted.process,
                ancestors=accepted.ancestors,
            )
            state.peers[address] = peer
            state.lives[peer.bound_name] = peer
            state.tell_outlived(address, peer.incarnation)
            if peer.process is not None:
                state.by_process.setdefault(peer.process, {})[peer] = None
                state.effects.append(WatchProcess(peer.process))
        self._authorise(peer, hello.authority, accepted)
        state.strangers.pop(accepted.route, None)
        state.by_route[accepted.route] = peer
        if bundle.CAPABILITY in hello.capabilities:
            state.bundling.add(accepted.route)
        peer.route = accepted.route
        peer.resume_by = None
        peer.needs_resync = False
        peer.was_cut_off = False
        # What waits while there was no connection goes by the mailbox, after the Welcome.
        peer.is_suspended = False
        if len(peer.mailbox) > 0:
            state.suspend(accepted.route, peer)
        return peer, is_resumed

    def _authorise(self, peer: Peer, wish: int | None, accepted: Accepted) -> None:
        runner_pids = {process.pid for process in self._state.runners}
        bits = granted(
            is_same_user=accepted.is_same_user,
            # A process that was gone before it could be looked at may have been anybody's child.
            pid=0 if accepted.process is None else accepted.pid,
            ancestors=accepted.ancestors,
            runner_pids=runner_pids,
        )
        confined_to = self._session_of(accepted.ancestors) if bits == Authority.CHILD else None
        bits = grant_of_process(
            bits,
            runners=self._runner_bits([] if accepted.process is None else [accepted.process]),
            outer_runners=self._runner_bits([each for each in self._state.runners if each.pid in accepted.ancestors]),
            is_runner=peer.kind is PeerKind.RUNNER,
        )
        peer.authorise(narrowed(bits, wish), confined_to=confined_to, epoch=self._state.epoch)

    def _runner_bits(self, processes: list[ProcessIdentity]) -> list[int]:
        """Return what the runners of these processes may do, as far as they said Hello before."""
        return [
            peer.authority
            for process in processes
            for peer in self._state.by_process.get(process, ())
            if peer.kind is PeerKind.RUNNER and peer.stamp
        ]

    def _session_of(self, ancestors: tuple[int, ...]) -> str:
        sessions = {process.pid: session for process, session in self._state.runners.items()}
        return next((sessions[pid] for pid in ancestors if pid in sessions), "")

    def _confine_children(self, runner: ProcessIdentity, session: str, now: float) -> None:
        """From now on this process's descendants are children, also those that came before it."""
        state = self._state
        state.runners.setdefault(runner, session)
        for peer in list(state.peers.values()):
            if runner.pid not in peer.ancestors or peer.confined_to is not None:
                continue
            session = state.runners[runner]
            peer.authorise(peer.authority & Authority.CHILD, confined_to=session, epoch=state.epoch)
            for key in [*peer.roles, *peer.waits_for]:
                state.release_role(peer, key, now)
            for wanted in [each for each in peer.subscriptions if confine(peer, each) != each]:
                state.topics.remove(peer, wanted)

    def _forbid_asking(self, runner: ProcessIdentity) -> None:
        """Take the right to ask from the connections that this process made before its runner said Hello."""
        for peer in self._state.by_process.get(runner, ()):
            rest = peer.authority & ~Authority.ASK
            if rest != peer.authority:
                peer.authorise(rest, confined_to=peer.confined_to, epoch=self._state.epoch)

    def _restate(self, peer: Peer, hello: Hello, now: float) -> None:
        """Make roles, subscriptions and watches what the Hello says they are."""
        state = self._state
        stated = {(each.role, each.scope) for each in hello.roles}
        for key in [each for each in (*peer.roles, *peer.waits_for) if each not in stated]:
            state.release_role(peer, key, now)
        if peer.authority & Authority.CLAIM:
            for held in hello.roles:
                self._reclaim(peer, held)
        elif hello.roles:
            state.counters["refused_refused"] += len(hello.roles)
        wanted = [
            confined
            for each in hello.subscriptions[:MAX_SUBSCRIPTIONS]
            if (confined := confine(peer, each)) is not None
        ]
        for each in peer.subscriptions.difference(wanted):
            state.topics.remove(peer, each)
        for each in wanted:  # in the order stated, so that the same frames always have the same consequences
            state.topics.add(peer, each)
        watches = dict(filter(None, map(parse_life, hello.watches[:MAX_WATCHES])))
        for address in peer.watches - watches.keys():
            state.unwatch(peer, address)
        for address in sorted(watches.keys() - peer.watches):
            state.watch(peer, address, watches[address])

    def _reclaim(self, peer: Peer, held: HeldRole) -> None:
        key = (held.role, held.scope)
        if not is_role(held.role) or key in peer.waits_for:
            return
        try:
            self._state.roles.claim(
                peer,
                key,
                wait=held.generation == 0,
                record_n=held.record_n,
                is_settling=not self._state.is_settled,
            )
        except PisubError as error:  # the Welcome does not list it, which says that it is not held
            self._state.counters[f"refused_{error.code}"] += 1

    # Going -------------------------------------------------------------------------------------------------------

    def goodbye(self, route: bytes, peer: Peer, now: float) -> None:
        """A peer leaves in order. Its connection may carry stragglers, which are ignored."""
        state = self._state
        accepted = state.accepted.get(route)
        self.end(peer, GoneReason.GOODBYE, now)
        if accepted is not None:
            state.strangers[route] = Stranger(accepted, now, said_goodbye=True)

    def connection_lost(self, route: bytes, now: float) -> None:
        """A connection broke: its peer has a while to come back, if its process lives."""
        state = self._state
        state.accepted.pop(route, None)
        state.strangers.pop(route, None)
        state.effects.append(Forget(route))
        peer = state.by_route.get(route)
        if peer is None:
            return
        state.counters["lost_connections"] += 1
        state.detach(peer)
        peer.needs_resync = True
        peer.resume_by = now + RESUME_GRACE_S

    def process_died(self, process: ProcessIdentity, now: float) -> None:
        """A process is gone, and every peer in it."""
        self._state.counters["deaths"] += 1
        self._state.runners.pop(process, None)
        for peer in list(self._state.by_process.get(process, ())):
            self.end(peer, GoneReason.EXITED, now)

    def end(self, peer: Peer, reason: GoneReason, now: float) -> None:
        """A peer is gone: take back what it had, and tell who must know."""
        state = self._state
        state.detach(peer)
        if state.peers.get(peer.address) is peer:
            del state.peers[peer.address]
            del state.lives[peer.bound_name]
        state.queued_bytes -= peer.mailbox.queued_bytes
        peer.mailbox.clear()
        for address in list(peer.watches):
            state.unwatch(peer, address)
        state.topics.remove_peer(peer)
        for number in list(peer.calls):
            state.end_call(peer, number)
        for key in [*peer.waits_for, *peer.roles]:
            state.release_role(peer, key, now)
        state.fail_calls_to(peer, _CALLEE_LOST)
        state.tell_watchers(peer.address, reason, peer.incarnation)
        self._forget_process(peer)

    def _forget_process(self, peer: Peer) -> None:
        state = self._state
        if peer.process is None:
            return
        others = state.by_process.get(peer.process, {})
        others.pop(peer, None)
        if not others:
            state.by_process.pop(peer.process, None)
            if peer.process not in state.runners:  # a runner's descendants are children for as long as it lives
                state.effects.append(UnwatchProcess(peer.process))

    # Time --------------------------------------------------------------------------------------------------------

    def expire(self, now: float) -> None:
        """End lost peers whose grace is over, and connections that never said Hello."""
        state = self._state
        for peer in [each for each in state.peers.values() if each.resume_by is not None and each.resume_by <= now]:
            self.end(peer, GoneReason.SLOW if peer.was_cut_off else GoneReason.LOST, now)
        for route, stranger in list(state.strangers.items()):
            if stranger.since + HELLO_TIMEOUT_S <= now:
                del state.strangers[route]
                state.effects.append(Disconnect(route))


def confine(peer: Peer, wanted: Subscription) -> Subscription | None:
    """Return the subscription that a peer may have in place of the one it wants; None where it may have none."""
    if wanted.topic == TRACE_TOPIC and not wanted.is_prefix and not peer.authority & Authority.ADMIN:
        return None
    if peer.confined_to is None:
        return wanted
    if wanted.scope not in ("", peer.confined_to):
        return None
    return Subscription(topic=wanted.topic, is_prefix=wanted.is_prefix, scope=peer.confined_to)
