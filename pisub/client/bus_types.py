"""What a user of the bus gets to see: the state of the connection, who sent a message, a published message."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TypeVar

import msgspec

from pisub.errors import PisubError, RoleTakenError, WireErrors
from pisub.protocol import codec
from pisub.protocol.session import Failure

T = TypeVar("T")

#: Takes a subscription back. Idempotent; no message is handed over after it returned.
Unsubscriber = Callable[[], None]


class BusState(enum.Enum):
    """What handlers of ``Bus.on_state`` are told."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    #: Messages may have been missed (a lost connection, a slow reader): readers of files read again.
    RESYNC = "resync"
    #: The bus was closed by its owner; nothing comes after it.
    CLOSED = "closed"


class Sender(msgspec.Struct, frozen=True):
    """Who sent a message, as the broker says it.

    Attributes:
        address: Its address; '' is the broker itself.
        incarnation: Which life of that address.
        authority: Bits of ``pisub.protocol.session.Authority`` that it holds.
    """

    address: str
    incarnation: int = 0
    authority: int = 0


class Incoming(msgspec.Struct, frozen=True):
    """A published message, not decoded yet.

    Attributes:
        topic: The topic it was published on.
        scope: The session it was published in, or ''.
        sender: Who published it.
        body: The encoded body.
        dropped: How many droppable messages to this client were dropped before it.
    """

    topic: str
    scope: str
    sender: Sender
    body: bytes
    dropped: int = 0

    def decode(self, kind: type[T]) -> T:
        """Decode the body as ``kind``, a Message class or a union of them.

        Raises:
            ProtocolError: It is not such a message.
        """
        return codec.decode(self.body, kind)


def error_of(failure: Failure) -> PisubError:
    """Return the error that a failure stands for."""
    error = WireErrors.build(failure.code, failure.message, field=failure.field)
    if isinstance(error, RoleTakenError):
        error.holder = failure.holder
    return error
