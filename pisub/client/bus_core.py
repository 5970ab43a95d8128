"""The client's side of the conversation with the broker, without a socket, a clock or a loop.

Owns the state of the connection (offline, greeting, online, closed), what a Hello states, the open calls, the outbox
and the answers given. Time is an argument, effects are returned. Remote input never makes it raise.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterable

import msgspec

from pisub.client.bus_answers import Acknowledgements, AnswerCache
from pisub.client.bus_calls import PendingCall, PendingCalls
from pisub.client.bus_claims import Claims, RoleKey
from pisub.client.bus_events import Announce, Dial, Effect, End, FindBroker, Gone, Granted, HangUp, Rejected
from pisub.client.bus_hello import Identity, hello_frame, split_stated
from pisub.client.bus_outbox import Outbox, Outgoing
from pisub.client.bus_types import BusState
from pisub.errors import (
    CallTimeoutError,
    ClientClosedError,
    NotDeliveredError,
    OutcomeUnknownError,
    PisubError,
    StaleGenerationError,
)
from pisub.protocol.bundle import CAPABILITY
from pisub.protocol.codec import decode, encode, pack
from pisub.protocol.delivery import Fence, Header, Kind, Priority
from pisub.protocol.limits import WELCOME_TIMEOUT_S
from pisub.protocol.session import (
    Arrived,
    Claim,
    Claimed,
    ControlRequest,
    Release,
    RoleGranted,
    Subscribe,
    Subscription,
    Terminated,
    Unsubscribe,
    Watch,
    Welcome,
)

#: A connection may be gone for this long before the client looks for a broker itself: libzmq needs 20 to 120 ms to find
#: the next one on the same path.
SEARCH_AFTER_S = 1.0


class Phase(enum.Enum):
    """Where the connection stands."""

    OFFLINE = "offline"  # no connection
    GREETING = "greeting"  # connected, no Welcome yet
    ONLINE = "online"
    CLOSED = "closed"


class BusCore:
    """All that a client knows. Every method that can change what is to be done returns effects, in order."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.phase = Phase.OFFLINE
        self.epoch = ""
        self.calls = PendingCalls()
        self.outbox = Outbox()
        self.answers = AnswerCache()
        self.arrived = Acknowledgements()
        self.subscriptions: dict[Subscription, None] = {}
        #: Addresses that are watched, and which life of each; 0 where it is not known.
        self.watches: dict[str, int] = {}
        self.is_hello_due = False
        #: The Hello whose Welcome is awaited; the Welcome of an earlier one belongs to a connection that is gone.
        self.hello_id = -1
        #: Whether this broker takes several frames in one message.
        self.is_bundling = False
        self._claims = Claims()
        self._welcome_due: float | None = None
        self._search_due: float | None = None
        self._is_searching = False
        self._last_id = 0

    # What this client holds. ---------------------------------------------------------------------------------

    def next_id(self) -> int:
        """Return the next message id; they ascend from 1."""
        self._last_id += 1
        return self._last_id

    def fence(self, key: RoleKey) -> Fence | None:
        """Return the fencing number of a role that is held now, else None."""
        generation = self._claims.generation(key)
        return Fence(self.epoch, generation) if generation else None

    def begin_claim(self, request: Claim) -> None:
        """Note a claim before it is sent: its grant may overtake the handling of its answer."""
        self._claims.begin(request)

    def note_claimed(self, answer: Claimed) -> bool:
        """The broker granted or queued a claim. Tell whether this made the client the holder."""
        return self._claims.claimed(answer)

    def note_answer(self, call: PendingCall, body: bytes) -> list[Effect]:
        """The broker answered a claim. A holder is told of a role that was claimed again, not of its own first claim.

        Raises:
            ProtocolError: The answer is none.
        """
        answer = decode(body, Claimed)
        if not self.note_claimed(answer) or call.waiter is not None:
            return []
        return [Granted(RoleGranted(role=answer.role, scope=answer.scope, generation=answer.generation))]

    def note_granted(self, granted: RoleGranted) -> list[Effect]:
        """A waiting claim became a holding one. One that was released in the meantime changes nothing."""
        return [Granted(granted)] if self._claims.granted(granted) else []

    def reclaim(self, claim: Claim) -> None:
        """Queue a claim of the core's own. One that fails is a role that another has."""
        self._request(claim, claim)

    def forget_claim(self, key: RoleKey) -> None:
        """The role was given back."""
        self._claims.forget(key)

    def give_up(self, key: RoleKey) -> None:
        """A claim or a release came to no answer. The broker may have granted it: tell it that it is not wanted."""
        self._claims.forget(key)
        self._request(Release(role=key[0], scope=key[1]))

    def unsubscribe(self, subscription: Subscription) -> None:
        """A subscription is not wanted any more."""
        self.subscriptions.pop(subscription, None)
        self._request(Unsubscribe(topic=subscription.topic, is_prefix=subscription.is_prefix, scope=subscription.scope))

    def note_watched(self, address: str, incarnation: int) -> None:
        """The broker said which life of an address is watched. The next Hello says it too."""
        if address in self.watches:
            self.watches[address] = incarnation

    def note_terminated(self, message: Terminated) -> list[Effect]:
        """A watched peer is gone. Of another life than the one watched it is old news."""
        watched = self.watches.get(message.address)
        if watched is None or (watched and message.incarnation not in (0, watched)):
            return []
        del self.watches[message.address]
        return [Gone(message)]

    def hello(self) -> bytes:
        """Make the Hello of this moment: with all roles, and as many subscriptions and watches as fit."""
        self.hello_id = self.next_id()
        fits, _ = split_stated(self.subscriptions, self._watched())
        return hello_frame(self.identity, self.hello_id, self._claims.stated(), fits)

    # The connection. -----------------------------------------------------------------------------------------

    def start(self) -> list[Effect]:
        """Begin: there is no connection yet."""
        return self._search()

    def link_up(self, now: float) -> list[Effect]:
        """The transport has a connection. The shell sends ``hello()`` now, before anything else."""
        if self.phase is Phase.CLOSED:
            return []
        effects: list[Effect] = [Announce(BusState.DISCONNECTED)] if self.phase is Phase.ONLINE else []
        self.phase = Phase.GREETING
        self.is_hello_due = True
        self.hello_id = -1
        self._search_due = None
        self._welcome_due = now + WELCOME_TIMEOUT_S
        return effects

    def link_down(self, now: float) -> list[Effect]:
        """The connection is gone. What is unsent stays."""
        if self.phase in (Phase.CLOSED, Phase.OFFLINE):
            return []
        return self._go_offline(search_at=now + SEARCH_AFTER_S)

    def leaving(self) -> list[Effect]:
        """The broker says that it goes: look for the next one at once."""
        if self.phase in (Phase.CLOSED, Phase.OFFLINE):
            return []
        return [*self._go_offline(search_at=None), HangUp(), *self._search()]

    def stranger(self, now: float) -> list[Effect]:
        """The broker says "hello first": it is another one than we believe."""
        return self.link_up(now) if self.phase is Phase.ONLINE else []

    def rejected(self, error: PisubError, now: float) -> list[Effect]:
        """The broker refused the Hello. It is said again later: who is in the way may go."""
        if self.phase is not Phase.GREETING:
            return []
        self._welcome_due = now + WELCOME_TIMEOUT_S
        return [Rejected(error)]

    def found(self, address: str, now: float) -> list[Effect]:
        """A broker is there. While a connection is up, its Welcome is waited for instead."""
        self._is_searching = False
        if self.phase is not Phase.OFFLINE:
            return []
        self._search_due = now + SEARCH_AFTER_S
        return [Dial(address)]

    def not_found(self, error: PisubError, now: float) -> list[Effect]:
        """None is there, and none could be started. It is tried again."""
        self._is_searching = False
        if self.phase is not Phase.OFFLINE:
            return []
        self._search_due = now + SEARCH_AFTER_S
        return [Rejected(error)]

    def welcomed(self, welcome: Welcome, now: float) -> list[Effect]:
        """The broker knows us: roles get their numbers, open calls are put before the outbox."""
        if self.phase is not Phase.GREETING:
            return []
        is_first = not self.epoch
        renewed, role_effects = self._claims.renew(welcome, self.epoch)
        self.phase = Phase.ONLINE
        self.epoch = welcome.epoch
        self.is_bundling = CAPABILITY in welcome.capabilities
        self._welcome_due = None
        self._search_due = None
        ended = [] if is_first else self._resend(renewed, now)
        for request in self.unstated():
            self._request(request)
        effects: list[Effect] = [Announce(BusState.CONNECTED), *role_effects, *ended]
        if not is_first or welcome.resync:
            effects.append(Announce(BusState.RESYNC))
        return effects

    def failed(self, message_id: int, error: PisubError) -> list[Effect]:
        """A FAIL came. Nothing to do where the call has ended."""
        call = self.calls.close(message_id)
        if call is None:
            return []
        if call.is_resent and isinstance(error, NotDeliveredError | StaleGenerationError):
            error = OutcomeUnknownError(f"Sent again after a connection was lost, and not delivered: {error.message}")
        return [End(call, error)]

    def send_again(self, message_id: int, callee: str, now: float) -> None:
        """The callee's connection broke, and the call may be lost with it. A callee that has it ignores the second.

        Where the call has ended here, the broker need not wait for its answer any more.
        """
        call = self.calls.get(message_id)
        with contextlib.suppress(NotDeliveredError):  # no room: this client is not read, and will say Hello again
            if call is None:
                self._tell_arrived(callee, (message_id,), ended=message_id)
            elif call.is_sent:
                call.bound_to = call.bound_to or callee
                call.is_resent = True
                self.outbox.push(_remade(Outgoing(b"", call.header, call.body, call), {}, now, to=call.bound_to))

    def unstated(self) -> list[Subscribe | Watch]:
        """Return what did not fit into the Hello, as requests."""
        _, (subscriptions, watches) = split_stated(self.subscriptions, self._watched())
        return [
            *(Subscribe(topic=each.topic, is_prefix=each.is_prefix, scope=each.scope) for each in subscriptions),
            *(Watch(address=address) for address in watches),
        ]

    def close(self) -> list[Effect]:
        """End: every open call ends with ``ClientClosedError``."""
        if self.phase is Phase.CLOSED:
            return []
        self.phase = Phase.CLOSED
        self._welcome_due = self._search_due = None
        error = ClientClosedError("The bus was closed while the call was open. The callee may still be at work.")
        return [*(End(call, error) for call in self.calls.close_all()), Announce(BusState.CLOSED)]

    # Time. ---------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return when ``tick`` is wanted, or None."""
        return min(
            (
                at
                for at in (self._search_due, self._welcome_due, self.arrived.due_at, self.calls.next_deadline())
                if at is not None
            ),
            default=None,
        )

    def tick(self, now: float) -> list[Effect]:
        """Do what is due."""
        effects: list[Effect] = [
            End(call, CallTimeoutError(f"No reply from {call.header.to or 'the broker'} in time."))
            for call in self.calls.expire(now)
        ]
        if self.arrived.due_at is not None and self.arrived.due_at <= now:
            self.acknowledge()
        if self._welcome_due is not None and self._welcome_due <= now:
            effects += [*self._go_offline(search_at=None), HangUp(), *self._search()]
        elif self._search_due is not None and self._search_due <= now:
            effects += self._search()
        return effects

    # Sending. ------------------------------------------------------------------------------------------------

    def hand_over(self, frame: bytes, call: PendingCall | None, send: Callable[[bytes], bool]) -> bool:
        """Hand a frame to ``send`` if nothing waits before it. False: it is to be pushed to the outbox."""
        if self.phase is not Phase.ONLINE or self.outbox or not send(frame):
            return False
        if call is not None:
            call.is_sent = True
        return True

    def drain(self, send: Callable[[bytes], bool]) -> bool:
        """Hand over what waits, the Hello before all else. False when ``send`` refused a frame."""
        if self.is_hello_due:
            if not send(self.hello()):
                return False
            self.is_hello_due = False
        return self.phase is not Phase.ONLINE or self.outbox.drain(send, is_bundling=self.is_bundling)

    def acknowledge(self) -> None:
        """Queue what tells the callees which of their answers arrived."""
        for callee, ids in self.arrived.take_all().items():
            self._tell_arrived(callee, ids)

    # Inside. -------------------------------------------------------------------------------------------------

    def _request(self, request: ControlRequest, claim: Claim | None = None) -> None:
        """Queue a request of the core's own: whatever becomes of it, nobody waits for it."""
        if self.phase is Phase.CLOSED:
            return
        header = Header(kind=Kind.CONTROL, priority=Priority.CONTROL, message_id=self.next_id())
        body = encode(request)
        call = PendingCall(header, body, None, is_repeatable=True, claim=claim)
        with contextlib.suppress(PisubError):  # no room: the next Hello says it again
            self.calls.open(call)
            self.outbox.push(Outgoing(pack(header, body), header, body, call))

    def _tell_arrived(self, callee: str, ids: Iterable[int], *, ended: int = 0) -> None:
        priority = Priority.TERMINAL if ended else Priority.DROPPABLE
        header = Header(kind=Kind.DONE, priority=priority, message_id=self.next_id(), correlation_id=ended, to=callee)
        body = encode(Arrived(message_ids=tuple(ids)))
        self.outbox.push(Outgoing(pack(header, body), header, body))

    def _watched(self) -> list[str]:
        return [f"{address}@{life}" if life else address for address, life in self.watches.items()]

    def _go_offline(self, *, search_at: float | None) -> list[Effect]:
        was_online = self.phase is Phase.ONLINE
        self.phase = Phase.OFFLINE
        self.is_hello_due = False
        self._welcome_due = None
        self._search_due = search_at
        return [Announce(BusState.DISCONNECTED)] if was_online else []

    def _search(self) -> list[Effect]:
        self._search_due = None
        if self._is_searching:
            return []
        self._is_searching = True
        return [FindBroker()]

    def _resend(self, renewed: dict[Fence, Fence], now: float) -> list[Effect]:
        """Put sent calls before what waits, bound to the life that has them; end those that may not be repeated."""
        self.calls.renumber(Kind.CONTROL, self.next_id)  # the last connection may still hold answers to the old ids
        again: list[Outgoing] = []
        ended: list[Effect] = []
        for call in self.calls.in_order():
            if not call.is_sent:
                continue
            target = self.calls.target_of(call)
            if target or call.is_repeatable:
                call.is_resent = True
                again.append(_remade(Outgoing(b"", call.header, call.body, call), renewed, now, to=target))
            else:
                self.calls.close(call.header.message_id)
                error = "The broker was lost before it said who has the call. Look at the record before repeating it."
                ended.append(End(call, OutcomeUnknownError(error)))
        waiting = self.outbox.take_all()
        again += (_remade(item, renewed, now) for item in waiting if item.call is None or not item.call.is_sent)
        self.outbox.put_first(again)
        return ended


def _remade(item: Outgoing, renewed: dict[Fence, Fence], now: float, *, to: str = "") -> Outgoing:
    """Make a frame again for a new connection: bound target, this broker's fencing number, what is left of the time."""
    call = item.call
    header = item.header if call is None else call.header
    if call is None and header.fence is None:
        return item
    fence = header.fence if header.fence is None else renewed.get(header.fence, header.fence)
    ttl_ms = header.ttl_ms
    if call is not None and call.deadline is not None:
        ttl_ms = max(1, int((call.deadline - now) * 1000))
    if call is not None:
        call.header = msgspec.structs.replace(call.header, fence=fence)  # the next time it is remade from this
    header = msgspec.structs.replace(header, to=to or header.to, fence=fence, ttl_ms=ttl_ms)
    return Outgoing(pack(header, item.body), header, item.body, call)
