"""The envelope: what the broker reads of every message, and what it stamps on it.

A client sends one frame: 3 bytes of magic, 1 byte of wire version, 2 bytes of header length (big endian), the header,
the body. The broker forwards that frame unchanged behind a frame of its own, the stamp. Header and stamp are msgpack
arrays; the body is a msgpack map and is never decoded on the way.
"""

from __future__ import annotations

from typing import Final

import msgspec

MAGIC: Final = b"psb"


class Kind:
    """What a frame is. Plain integers: the broker compares one per message."""

    HELLO: Final = 1  # client to broker, first on every connection
    WELCOME: Final = 2  # broker to client, answers HELLO
    GOODBYE: Final = 3  # client to broker, last
    LEAVING: Final = 4  # broker to client: it ends or moved; find the next one
    TELL: Final = 5  # to one address or role, no reply
    CALL: Final = 6  # to one address or role, exactly one REPLY or FAIL
    REPLY: Final = 7  # callee to caller
    FAIL: Final = 8  # callee or broker to caller; body is a Failure
    PUBLISH: Final = 9  # to the topic's subscribers, and to `to` if it is set
    CONTROL: Final = 10  # a call to the broker itself
    ROUTED: Final = 11  # broker to caller: the call was handed to `to`, which is now bound to it
    DONE: Final = 12  # caller to callee: the answers arrived, forget them; body is Arrived


class Priority:
    """What may happen to a message when its receiver is slow (`class` on the wire)."""

    CONTROL: Final = 0  # never dropped, goes first
    TERMINAL: Final = 1  # never dropped
    NORMAL: Final = 2  # never dropped, bounded by the peer's queue
    DROPPABLE: Final = 3  # dropped first; the receiver is told how many


class Flag:
    """Bits of ``Header.flags``."""

    IDEMPOTENT: Final = 1  # a CALL that may be sent again when it is not known whether it arrived
    BATCH: Final = 2  # reserved: no version sends it
    AGAIN: Final = 4  # on ROUTED: the callee's connection broke, the call may be lost; send it again, same id, to `to`
    REFERENCE: Final = 8  # the body stands for a larger one, which lies in a file beside the broker's socket


class Fence(msgspec.Struct, frozen=True, array_like=True):
    """A role holder's claim number. Compared for equality, together, by the broker."""

    epoch: str
    generation: int


class Header(msgspec.Struct, frozen=True, array_like=True):
    """The envelope of one message.

    Attributes:
        kind: One of ``Kind``.
        priority: One of ``Priority``.
        message_id: Ascends per sender incarnation, from 1. A resend carries the same id.
        correlation_id: The call's message id, on REPLY, FAIL and ROUTED; else 0.
        scope: Session id in which a role or a topic is meant; '' is the global scope.
        topic: On PUBLISH: the topic. On REPLY and FAIL: a topic that observers of the reply may follow, or ''.
        to: ``role:<name>``, an address, ``<address>@<incarnation>`` (bound), or ''.
        fence: The role for which the sender speaks, or null.
        ttl_ms: What was left of the call's time when it was sent; 0 is no limit.
        flags: Bits of ``Flag``.
        trace: W3C trace context, or ''.
    """

    kind: int
    priority: int = Priority.NORMAL
    message_id: int = 0
    correlation_id: int = 0
    scope: str = ""
    topic: str = ""
    to: str = ""
    fence: Fence | None = None
    ttl_ms: int = 0
    flags: int = 0
    trace: str = ""


class Stamp(msgspec.Struct, frozen=True, array_like=True):
    """What the broker says about a message it hands over. The only trustworthy statement of who sent it.

    Attributes:
        sender: The sender's address; '' for the broker itself.
        incarnation: Which life of that address.
        authority: Bits of ``pisub.protocol.session.Authority`` that the sender holds.
        epoch: Which life of the broker.
        dropped: Droppable messages to this receiver that were dropped since the last one handed over.
    """

    sender: str = ""
    incarnation: int = 0
    authority: int = 0
    epoch: str = ""
    dropped: int = 0
