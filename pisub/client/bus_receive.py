"""What a client does with what comes from the broker: every frame goes through here. No socket, no clock, no loop.

Owns the choice by kind and stamp, and what is stale: after a reconnect what the last connection still held is read
beside the new one's. Handlers of peers' messages are called by ``bus_callee``; all else is returned as effects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, assert_never

import msgspec

from pisub.client.bus_callee import Callee
from pisub.client.bus_calls import PendingCall
from pisub.client.bus_core import BusCore, Phase
from pisub.client.bus_events import Announce, Effect, Skip
from pisub.client.bus_types import BusState, Sender, error_of
from pisub.errors import NotDeliveredError, OutcomeUnknownError, ProtocolError
from pisub.protocol.codec import decode, unpack, unpack_stamp
from pisub.protocol.delivery import Flag, Header, Kind, Stamp
from pisub.protocol.session import Failure, RoleGranted, Routed, Terminated, Welcome

#: Different stamps that are remembered decoded. A sender's stamp is the same bytes for every message.
_MAX_STAMPS: Final = 1_024
_REPLY: Final = Kind.REPLY
_FROM_PEERS: Final = frozenset((Kind.CALL, Kind.TELL, Kind.PUBLISH, Kind.DONE))
_SPONTANEOUS: Final[Any] = Terminated | RoleGranted
_NOTHING: Final[tuple[Effect, ...]] = ()


class Receiver:
    """Takes messages for one bus. Nothing that comes makes it raise.

    Args:
        core: The client's state.
        callee: Takes what peers send unasked.
        answer: Given every call that ended with a reply, and its body. Not an effect: it is most of what comes, and
            an effect for each would cost a call a twentieth more.

    Attributes:
        ignored: Messages that nobody here could use: malformed, late, or of a kind without a handler.
    """

    def __init__(self, core: BusCore, callee: Callee, answer: Callable[[PendingCall, bytes], None]) -> None:
        self.ignored = 0
        #: Finds the body that a message stands for. The shell knows where.
        self.resolve: Callable[[bytes], bytes] = lambda body: body
        self._core = core
        self._callee = callee
        self._answer = answer
        self._close = core.calls.close
        self._note_arrived = core.arrived.add
        self._stamps: dict[bytes, tuple[Stamp, Sender, str]] = {}

    def receive(self, stamp_frame: bytes, frame: bytes, now: float) -> Sequence[Effect]:
        """Take one message; return what is to be done, in order."""
        try:
            stamp, sender, bound_name = self._stamps.get(stamp_frame) or self._learn(stamp_frame)
            header, body = unpack(frame)
        except ProtocolError:
            self.ignored += 1
            return (Skip(),)
        kind = header.kind
        if kind == _REPLY and bound_name and not stamp.dropped and not (header.topic or header.flags):  # nearly all
            number = header.correlation_id
            call = self._close(number)
            if call is None:
                self.ignored += 1
                return _NOTHING
            self._answer(call, body)
            if self._note_arrived(bound_name, number):
                self._core.acknowledge()
            return _NOTHING
        if header.flags & Flag.REFERENCE:
            body = self.resolve(body)
        if not bound_name:
            effects = self._on_broker(stamp, header, body, now)
            if kind == Kind.PUBLISH:
                self.ignored += not self._callee.receive(sender, header, body, stamp.dropped, now)
        elif kind in _FROM_PEERS:
            self.ignored += not self._callee.receive(sender, header, body, stamp.dropped, now)
            effects = _NOTHING
        elif header.topic and self._is_for_another(sender, header, body, stamp.dropped):
            effects = _NOTHING
        else:
            effects = self._on_answer(bound_name, header, body)
        return (Announce(BusState.RESYNC), *effects) if stamp.dropped else effects

    def _learn(self, stamp_frame: bytes) -> tuple[Stamp, Sender, str]:
        """Decode a stamp that was not seen yet; the last part is who a call is bound to, '' for the broker."""
        stamp = unpack_stamp(stamp_frame)
        address, incarnation = stamp.sender, stamp.incarnation
        if len(self._stamps) >= _MAX_STAMPS:
            self._stamps.clear()
        sender = Sender(address, incarnation, stamp.authority)
        known = self._stamps[stamp_frame] = (stamp, sender, f"{address}@{incarnation}" if address else "")
        if address:
            self._core.calls.note_life(address, incarnation)
        return known

    def _is_for_another(self, sender: Sender, header: Header, body: bytes, dropped: int) -> bool:
        """Show an answer on a topic to those here who observe it; tell whether it answers another client's call.

        Ids are each client's own: a copy of another's answer must not end a call of ours that has the same one.
        """
        is_observed = self._callee.observe(sender, header, body, dropped)
        is_for_another = header.to.partition("@")[0] not in ("", self._core.identity.address)
        self.ignored += is_for_another and not is_observed
        return is_for_another

    # Answers of peers. ---------------------------------------------------------------------------------------

    def _on_answer(self, callee: str, header: Header, body: bytes) -> Sequence[Effect]:
        if header.kind == Kind.REPLY:
            call = self._close(header.correlation_id)
            if call is not None:
                self._answer(call, body)
                self._arrived(callee, header.correlation_id)
                return _NOTHING
        if header.kind == Kind.FAIL:
            failure = _failure(body)
            if failure.code == NotDeliveredError.code:  # of a call of the callee's own: this one was delivered
                failure = msgspec.structs.replace(failure, code=OutcomeUnknownError.code)
            return self._on_fail(callee, header.correlation_id, failure)
        self.ignored += 1
        return _NOTHING

    def _arrived(self, callee: str, message_id: int) -> None:
        if self._note_arrived(callee, message_id):
            self._core.acknowledge()

    def _on_fail(self, callee: str, message_id: int, failure: Failure) -> Sequence[Effect]:
        effects = self._core.failed(message_id, error_of(failure))
        if not effects:
            self.ignored += 1
        elif callee:
            self._arrived(callee, message_id)
        return effects

    # The broker's own. ---------------------------------------------------------------------------------------

    def _on_broker(self, stamp: Stamp, header: Header, body: bytes, now: float) -> Sequence[Effect]:
        core, number = self._core, header.correlation_id
        # What the last broker said of calls and claims: they were put to this one again.
        is_stale = core.phase is Phase.ONLINE and stamp.epoch != core.epoch
        effects: Sequence[Effect] = _NOTHING
        try:
            match header.kind:
                case Kind.WELCOME if number == core.hello_id:
                    effects = core.welcomed(decode(body, Welcome), now)
                case Kind.LEAVING:
                    effects = core.leaving()
                case Kind.REPLY if not is_stale:
                    effects = self._on_own_reply(number, body)
                case Kind.FAIL:
                    effects = self._on_refusal(number, _failure(body), now, is_stale=is_stale)
                case Kind.ROUTED if not is_stale:
                    others = decode(body, Routed).message_ids if body else ()
                    for each in (number, *others):
                        if header.flags & Flag.AGAIN:
                            core.send_again(each, header.to, now)
                        else:
                            core.calls.bind(each, header.to)
                case Kind.PUBLISH:  # a trace: handlers take it as they take any other
                    pass
                case Kind.TELL:
                    effects = self._on_spontaneous(decode(body, _SPONTANEOUS), is_stale=is_stale)
                case _:
                    self.ignored += 1
        except ProtocolError:
            self.ignored += 1
        return effects

    def _on_own_reply(self, message_id: int, body: bytes) -> Sequence[Effect]:
        core = self._core
        call = core.calls.close(message_id)
        if call is None:
            self.ignored += 1
            return _NOTHING
        effects = core.note_answer(call, body) if call.claim is not None else []
        if call.waiter is not None:
            self._answer(call, body)
        return effects

    def _on_refusal(self, message_id: int, failure: Failure, now: float, *, is_stale: bool) -> Sequence[Effect]:
        if failure.code == "hello_first":
            return self._core.stranger(now)
        if message_id in (0, self._core.hello_id):
            return self._core.rejected(error_of(failure), now)
        if is_stale:
            self.ignored += 1
            return _NOTHING
        return self._on_fail("", message_id, failure)

    def _on_spontaneous(self, message: Terminated | RoleGranted, *, is_stale: bool) -> Sequence[Effect]:
        match message:
            case RoleGranted():
                self.ignored += is_stale
                return _NOTHING if is_stale else self._core.note_granted(message)
            case Terminated():
                effects = self._core.note_terminated(message)
                self.ignored += not effects
                return effects
            case _:
                assert_never(message)


def _failure(body: bytes) -> Failure:
    try:
        return decode(body, Failure)
    except ProtocolError as error:
        return Failure(code=error.code, message=f"A failure that cannot be read: {error.message}")
