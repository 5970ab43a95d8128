"""Requests to the broker itself: roles, subscriptions, watches, figures.

Owns what each ``ControlRequest`` does. It must not know routing of messages between peers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never, cast

from pisub.errors import InvalidArgumentError, PisubError, RefusedError, RoleTakenError, StaleGenerationError
from pisub.ids import is_role, parse_life
from pisub.protocol import codec
from pisub.protocol.base import Message
from pisub.protocol.delivery import Header, Kind
from pisub.protocol.limits import MAX_SUBSCRIPTIONS, MAX_TOPIC_CHARS, MAX_WATCHES
from pisub.protocol.session import (
    Claim,
    Claimed,
    ControlRequest,
    Done,
    Failure,
    FindRole,
    Release,
    RoleHolder,
    Shutdown,
    Status,
    Subscribe,
    Subscription,
    Unsubscribe,
    Unwatch,
    Watch,
)

from .admission import confine
from .authority import CONTROL_NEEDS
from .peers import Peer
from .routing import Routing
from .state import State
from .status import Rates, report


class Control:
    """Answers requests to the broker."""

    def __init__(self, state: State, routing: Routing, leave: Callable[[str], None]) -> None:
        self._state = state
        self._routing = routing
        self._leave = leave
        self.rates = Rates(state, state.started_at)

    def handle(self, peer: Peer, header: Header, body: bytes, now: float) -> None:
        """Do what one CONTROL frame asks, and answer it."""
        state = self._state
        try:
            request = codec.decode(body, cast("type[ControlRequest]", ControlRequest))
            self._authorise(peer, header, request)
            answer = self._do(peer, request, now)
        except PisubError as error:
            state.counters[f"refused_{error.code}"] += 1
            holder = error.holder if isinstance(error, RoleTakenError) else ""
            failure = Failure(code=error.code, message=error.message, field=error.field, holder=holder)
            state.send_own(peer, Kind.FAIL, failure, correlation_id=header.message_id)
            return
        state.send_own(peer, Kind.REPLY, answer, correlation_id=header.message_id)
        self._afterwards(peer, request, now)

    def _authorise(self, peer: Peer, header: Header, request: ControlRequest) -> None:
        if CONTROL_NEEDS[type(request)] & ~peer.authority:
            raise RefusedError(f"This peer has not the authority for {type(request).__name__} (only {peer.authority}).")
        if header.fence is not None and not self._state.holds(peer, header.fence):
            raise StaleGenerationError("The sender no longer holds the role it speaks for.")

    def _do(self, peer: Peer, request: ControlRequest, now: float) -> Message:
        state = self._state
        match request:
            case Claim():
                return self._claim(peer, request)
            case Release():
                state.roles.release(peer, _key(request), now)
            case FindRole():
                return holder_of(state, request.role, request.scope, now)
            case Subscribe():
                self._subscribe(peer, request)
            case Unsubscribe():
                wanted = Subscription(topic=request.topic, is_prefix=request.is_prefix, scope=request.scope)
                state.topics.remove(peer, confine(peer, wanted) or wanted)
            case Watch():
                return self._check_watch(peer, request)
            case Unwatch():
                state.unwatch(peer, _life(request.address)[0])
            case Status():
                return report(state, now, parked=self._routing.parked_count, rates=self.rates)
            case Shutdown():
                pass
            case _:
                assert_never(request)
        return Done()

    def _afterwards(self, peer: Peer, request: ControlRequest, now: float) -> None:
        """Do what must follow the answer on the wire."""
        match request:
            case Watch():
                self._state.watch(peer, *_life(request.address))
            case Release():
                self._state.grant_waiting(_key(request))
            case Claim():
                if _key(request) in peer.roles:
                    self._routing.unpark(_key(request), now)
            case Shutdown():
                self._leave("told to")
            case _:
                pass

    def _claim(self, peer: Peer, request: Claim) -> Claimed:
        if not is_role(request.role):
            raise InvalidArgumentError("A role has 1 to 64 lower-case letters, digits and . _ -", field="role")
        key = _key(request)
        role = self._state.roles.claim(
            peer,
            key,
            wait=request.wait,
            record_n=request.record_n,
            is_settling=not self._state.is_settled,
        )
        return Claimed(
            role=request.role,
            scope=request.scope,
            generation=peer.roles.get(key, 0),
            position=self._state.roles.position(peer, key),
            holder=role.holder.address if role.holder is not None else "",
        )

    def _check_watch(self, peer: Peer, request: Watch) -> Done:
        address, incarnation = _life(request.address)
        if len(peer.watches) >= MAX_WATCHES:
            raise RefusedError(f"A peer can watch {MAX_WATCHES} addresses.")
        there = self._state.peers.get(address)
        return Done(incarnation=incarnation if incarnation or there is None else there.incarnation)

    def _subscribe(self, peer: Peer, request: Subscribe) -> None:
        if len(request.topic) > MAX_TOPIC_CHARS or (not request.topic and not request.is_prefix):
            raise InvalidArgumentError(f"A topic has 1 to {MAX_TOPIC_CHARS} characters.", field="topic")
        if len(peer.subscriptions) >= MAX_SUBSCRIPTIONS:
            raise RefusedError(f"A peer can have {MAX_SUBSCRIPTIONS} subscriptions.")
        wanted = confine(peer, Subscription(topic=request.topic, is_prefix=request.is_prefix, scope=request.scope))
        if wanted is None:
            raise RefusedError(
                "A child sees what is published in its own run's session only, and who traces needs ADMIN."
            )
        self._state.topics.add(peer, wanted)


def holder_of(state: State, name: str, scope: str, now: float) -> RoleHolder:
    """Say who holds a role, or how long ago the last holder went."""
    role = state.roles.get((name, scope))
    if role is None:
        return RoleHolder(role=name, scope=scope)
    if role.holder is None:
        ago = None if role.vacated_at is None else round((now - role.vacated_at) * 1000)
        return RoleHolder(role=name, scope=scope, vacated_ms_ago=ago)
    return RoleHolder(role=name, scope=scope, address=role.holder.address, generation=role.generation)


def _life(text: str) -> tuple[str, int]:
    life = parse_life(text)
    if life is None:
        raise InvalidArgumentError("That is neither an address nor <address>@<incarnation>.", field="address")
    return life


def _key(request: Claim | Release) -> tuple[str, str]:
    return request.role, request.scope
