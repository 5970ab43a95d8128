"""Steering: which message reaches a working agent when, and what its sender is told.

``WAYS`` is the whole rule of mode and phase. ``SteerQueue`` applies it: events in, effects out, no clock, no thread, no
file. A message that was offered gets one of three histories: delivered; queued, then delivered; or failed, perhaps
after it was queued. It is *delivered* when the agent took it, never before.
"""

from __future__ import annotations

import enum
from collections import OrderedDict, deque
from types import MappingProxyType
from typing import Final, assert_never

import msgspec

from pisub.protocol.limits import MAX_FOLLOW_UPS


class Mode(enum.StrEnum):
    """How urgent a message is, in its sender's words."""

    STEER = "steer"  # now, in the middle of what the agent does
    FOLLOW_UP = "follow_up"  # after this turn
    AUTO = "auto"  # not into a turn, else at once


class Phase(enum.Enum):
    """What the agent does at the moment."""

    TURN = "mid-turn"
    BETWEEN = "between turns"
    SETTLING = "after its end, before it settled"
    IDLE = "idle"


class Way(enum.Enum):
    """How a message goes to the agent."""

    STEER = "steer"  # into its mailbox, at once
    FOLLOW_UP = "followUp"  # into the queue that is opened between turns
    PLAIN = "plain"  # the agent waits for nothing else: at once


#: (mode, phase) → way; contract, runs 4.4.
WAYS: Final = MappingProxyType[tuple[Mode, Phase], Way](
    {
        **{(Mode.STEER, phase): Way.STEER for phase in Phase},
        **{(Mode.FOLLOW_UP, phase): Way.FOLLOW_UP for phase in Phase},
        (Mode.AUTO, Phase.TURN): Way.FOLLOW_UP,
        (Mode.AUTO, Phase.BETWEEN): Way.STEER,
        (Mode.AUTO, Phase.SETTLING): Way.FOLLOW_UP,
        (Mode.AUTO, Phase.IDLE): Way.PLAIN,
    }
)


class AckState(enum.StrEnum):
    """What became of a message at the agent. In the order in which they can follow each other."""

    QUEUED = "queued"
    DELIVERED = "delivered"
    FAILED = "failed"


class SteerMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message to a working agent.

    Attributes:
        id: Of the request; the same id is delivered once.
        text: What the agent is told.
        mode: How urgent it is.
        source: Who sent it, for people.
        sent_at: When, in Unix milliseconds.
    """

    id: str
    text: str
    mode: Mode = Mode.STEER
    source: str = ""
    sent_at: int = 0


FULL: Final = f"Follow-up queue is full ({MAX_FOLLOW_UPS} messages)."
CLOSED: Final = "The run is over, or is being ended."
NEVER_READ: Final = "The run ended before its agent read the message."
NEVER_RELEASED: Final = "The run ended before the queued follow-up was delivered."

#: Ids that are remembered, so that a repeated request is not delivered twice.
_MAX_KNOWN: Final = 4_096


class SteerEvent(msgspec.Struct, frozen=True):
    """Base of what can happen."""


class Offered(SteerEvent, frozen=True):
    """A message arrived for the agent."""

    message: SteerMessage


class TurnBegan(SteerEvent, frozen=True):
    """The agent began a turn; turns nest, the outermost counts."""


class TurnEnded(SteerEvent, frozen=True):
    """The agent ended a turn."""


class Polled(SteerEvent, frozen=True):
    """The agent takes what is there, and does not wait."""


class Waited(SteerEvent, frozen=True):
    """The agent takes one message, or waits for one until ``WaitEnded``."""


class WaitEnded(SteerEvent, frozen=True):
    """One wait is over, whether it brought a message or not."""


class AgentEnded(SteerEvent, frozen=True):
    """The agent's function is over; its run is not."""


class Closed(SteerEvent, frozen=True):
    """The run is over: nothing is delivered any more."""


AnySteerEvent = Offered | TurnBegan | TurnEnded | Polled | Waited | WaitEnded | AgentEnded | Closed


class SteerEffect(msgspec.Struct, frozen=True):
    """Base of what is to be done."""


class Acknowledge(SteerEffect, frozen=True):
    """Tell the sender what became of its message."""

    id: str
    state: AckState
    text: str


class Hand(SteerEffect, frozen=True):
    """Give the agent a message: the answer to its ``Polled`` or ``Waited``."""

    message: SteerMessage


class Wake(SteerEffect, frozen=True):
    """Something is there for an agent that waits: let it come again."""


AnySteerEffect = Acknowledge | Hand | Wake


class _FollowUp:
    """A queued message; eligible once a turn has ended after it came."""

    def __init__(self, message: SteerMessage) -> None:
        self.message = message
        self.is_eligible = False


class SteerQueue:
    """The messages of one agent. Not thread-safe.

    An agent without turns is served too: where it waits, or looks, that is the boundary between two of them.
    """

    def __init__(self) -> None:
        self._ready: deque[tuple[SteerMessage, bool]] = deque()  # with: is it a released follow-up
        self._queued: deque[_FollowUp] = deque()
        self._known: OrderedDict[str, None] = OrderedDict()
        self._turns = 0
        self._waits = 0
        self._has_turns = False
        self._is_settling = False
        self._is_closed = False

    @property
    def phase(self) -> Phase:
        """What the agent does at the moment."""
        if self._is_settling:
            return Phase.SETTLING
        if self._turns:
            return Phase.TURN
        return Phase.IDLE if self._waits else Phase.BETWEEN

    def handle(self, event: AnySteerEvent) -> list[AnySteerEffect]:
        """Take one event; return what is to be done, in order. Never raises, for any order of events."""
        match event:
            case Offered(message):
                return self._offer(message)
            case TurnBegan():
                self._has_turns = True
                self._turns += 1
                return self._release() if self._turns == 1 else []
            case TurnEnded():
                if self._turns == 1:
                    self._mark_eligible()
                self._turns = max(0, self._turns - 1)
                return []
            case Polled():
                return self._poll()
            case Waited():
                return self._wait()
            case WaitEnded():
                self._waits = max(0, self._waits - 1)
                return []
            case AgentEnded():
                self._is_settling = True
                return []
            case Closed():
                return self._close()
            case _:
                assert_never(event)

    def _offer(self, message: SteerMessage) -> list[AnySteerEffect]:
        if message.id in self._known:
            return []
        self._known[message.id] = None
        if len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)
        if self._is_closed:
            return [Acknowledge(message.id, AckState.FAILED, CLOSED)]
        match WAYS[message.mode, self.phase]:
            case Way.STEER | Way.PLAIN:
                self._ready.append((message, False))
                return [Wake()] if self._waits else []
            case Way.FOLLOW_UP:
                in_flight = sum(is_follow_up for _, is_follow_up in self._ready)
                if len(self._queued) + in_flight >= MAX_FOLLOW_UPS:
                    return [Acknowledge(message.id, AckState.FAILED, FULL)]
                self._queued.append(_FollowUp(message))
                acknowledge = Acknowledge(message.id, AckState.QUEUED, "Queued for after this turn.")
                if self.phase is not Phase.IDLE:
                    return [acknowledge]
                self._mark_eligible()  # it waits: its turn has ended, and this message begins the next
                return [acknowledge, *self._release()]

    def _poll(self) -> list[AnySteerEffect]:
        if self._is_closed:
            return []
        if not self._has_turns and not self._is_settling:
            self._mark_eligible()
            self._release()
        return [effect for _ in range(len(self._ready)) for effect in self._hand()]

    def _wait(self) -> list[AnySteerEffect]:
        if self._is_closed:
            return []
        self._waits += 1
        if not self._ready and self.phase is Phase.IDLE:
            self._mark_eligible()
            self._release()
        return self._hand() if self._ready else []

    def _hand(self) -> list[AnySteerEffect]:
        message, _ = self._ready.popleft()
        return [Hand(message), Acknowledge(message.id, AckState.DELIVERED, "The agent has it.")]

    def _mark_eligible(self) -> None:
        for each in self._queued:
            each.is_eligible = True

    def _release(self) -> list[AnySteerEffect]:
        """Open the queue for one message, the oldest, if its turn has ended."""
        if not self._queued or not self._queued[0].is_eligible or self._is_closed:
            return []
        self._ready.append((self._queued.popleft().message, True))
        return [Wake()] if self._waits else []

    def _close(self) -> list[AnySteerEffect]:
        if self._is_closed:
            return []
        self._is_closed = True
        unread = [
            Acknowledge(message.id, AckState.FAILED, NEVER_RELEASED if is_follow_up else NEVER_READ)
            for message, is_follow_up in self._ready
        ]
        waiting = [Acknowledge(each.message.id, AckState.FAILED, NEVER_RELEASED) for each in self._queued]
        self._ready.clear()
        self._queued.clear()
        return [*unread, *waiting]


def markdown_table() -> str:
    """Return ``WAYS`` as the table that stands in ``docs/agents.md``."""
    head = ["mode", *(phase.value for phase in Phase)]
    rows = [[f"`{mode}`", *(WAYS[mode, phase].value for phase in Phase)] for mode in Mode]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))
