"""Talking with the broker itself: hello, names, roles, subscriptions, watches, status."""

from __future__ import annotations

import enum
from typing import Final

from pisub.process import ProcessIdentity
from pisub.protocol.base import Message, Part


class PeerKind(enum.StrEnum):
    """What a peer is. It describes, it does not authorise."""

    CLIENT = "client"
    HOST = "host"
    RUNNER = "runner"
    OBSERVER = "observer"


class Authority:
    """What a peer may do, as bits. The broker computes them from the kernel's word; a Hello can only narrow them."""

    CALL: Final = 1  # tell, call, publish
    CLAIM: Final = 2  # hold roles
    CONTROL_RUNS: Final = 4  # stop, steer, interrupt runs
    ANSWER: Final = 8  # answer a human's question
    ADMIN: Final = 16  # stop the broker, trace it
    ASK: Final = 32  # send to the role `host`: ask the human

    OWNER: Final = CALL | CLAIM | CONTROL_RUNS | ANSWER | ADMIN | ASK
    CHILD: Final = CALL


class HeldRole(Part, frozen=True, kw_only=True):
    """A role that a client says it holds, when it says Hello to a broker that may be new."""

    role: str
    scope: str = ""
    #: The claim's fencing number under the broker that granted it; 0 for a claim that still waits.
    generation: int = 0
    #: Rises with every holder that a scope's record has seen (``host.<n>.json``); 0 where the role has no record.
    record_n: int = 0


class Subscription(Part, frozen=True, kw_only=True):
    """Which published messages a client wants."""

    topic: str
    #: Whether ``topic`` is the beginning of the topics that are wanted, rather than the whole of one.
    is_prefix: bool = False
    #: Only messages published in this scope; '' is every scope that the peer may see.
    scope: str = ""


class Hello(Message, frozen=True, kw_only=True, tag="hello"):
    """First message on every connection. It states everything that the broker must know of the client."""

    wire_versions: tuple[int, ...]
    kind: PeerKind
    address: str
    incarnation: int
    process: ProcessIdentity
    session: str = ""
    software: str = ""
    capabilities: tuple[str, ...] = ()
    #: Bits of ``Authority`` that the client wants at most; null is all that it can get.
    authority: int | None = None
    roles: tuple[HeldRole, ...] = ()
    subscriptions: tuple[Subscription, ...] = ()
    #: What it watches: ``<address>@<incarnation>`` where it knows which life, else ``<address>``.
    watches: tuple[str, ...] = ()


class Welcome(Message, frozen=True, kw_only=True, tag="welcome"):
    """The broker knows the client now."""

    wire_version: int
    address: str
    epoch: str
    broker: ProcessIdentity
    authority: int
    capabilities: tuple[str, ...] = ()
    software: str = ""
    #: Roles from the Hello that the client holds now, with their generation under this broker.
    roles: tuple[HeldRole, ...] = ()
    #: Whether messages may have been dropped since the client was last heard: read the files again.
    resync: bool = False


class Failure(Message, frozen=True, kw_only=True, tag="failure"):
    """Body of FAIL: why there is no reply. ``code`` is one of ``pisub.errors``' codes, or the callee's own."""

    code: str
    message: str
    field: str | None = None
    #: The holder of a role that was wanted, and the like.
    holder: str = ""


class Claim(Message, frozen=True, kw_only=True, tag="claim"):
    """Wants a role. First claim wins.

    With ``wait`` the reply to a claim for a taken role is ``Claimed(generation=0)``, and ``RoleGranted`` follows when
    it is this claimant's turn; without, it is a Failure ``role_taken``.
    """

    role: str
    scope: str = ""
    wait: bool = False
    record_n: int = 0


class Claimed(Message, frozen=True, kw_only=True, tag="claimed"):
    """Answer to a claim. ``generation`` 0 means that the claimant waits, at ``position`` (1 is next)."""

    role: str
    scope: str = ""
    generation: int
    position: int = 0
    holder: str = ""


class RoleGranted(Message, frozen=True, kw_only=True, tag="role-granted"):
    """A waiting claimant now holds the role."""

    role: str
    scope: str = ""
    generation: int


class Release(Message, frozen=True, kw_only=True, tag="release"):
    """Gives a role, or a place in its queue, back."""

    role: str
    scope: str = ""


class FindRole(Message, frozen=True, kw_only=True, tag="find-role"):
    """Asks who holds a role."""

    role: str
    scope: str = ""


class RoleHolder(Message, frozen=True, kw_only=True, tag="role-holder"):
    """Who holds a role: '' and 0 where nobody does. ``vacated_ms_ago`` says how long ago the last holder went."""

    role: str
    scope: str = ""
    address: str = ""
    generation: int = 0
    vacated_ms_ago: int | None = None


class Subscribe(Message, frozen=True, kw_only=True, tag="subscribe"):
    """Adds a subscription. Idempotent."""

    topic: str
    is_prefix: bool = False
    scope: str = ""


class Unsubscribe(Message, frozen=True, kw_only=True, tag="unsubscribe"):
    """Removes a subscription. Idempotent."""

    topic: str
    is_prefix: bool = False
    scope: str = ""


class Watch(Message, frozen=True, kw_only=True, tag="watch"):
    """Wants one ``Terminated`` when ``address`` goes, at once if it is not there.

    ``<address>@<incarnation>`` means that life alone. ``Done`` says which life it is.
    """

    address: str


class Unwatch(Message, frozen=True, kw_only=True, tag="unwatch"):
    """No longer wants it."""

    address: str


class GoneReason(enum.StrEnum):
    """How a peer went."""

    EXITED = "exited"  # its process is gone
    GOODBYE = "goodbye"
    LOST = "lost"  # the process lives, its connection did not come back
    SLOW = "slow"  # dropped at its queue's bound
    UNKNOWN = "unknown"  # it was not there when the watch began


class Terminated(Message, frozen=True, kw_only=True, tag="terminated"):
    """A watched peer is gone. Sent once per watch. ``incarnation`` is 0 where it is not known which life was meant."""

    address: str
    reason: GoneReason
    incarnation: int = 0


class Done(Message, frozen=True, kw_only=True, tag="done"):
    """The broker did what was asked. ``incarnation`` answers ``Watch``: which life is watched, 0 if none is there."""

    incarnation: int = 0


class Arrived(Message, frozen=True, kw_only=True, tag="arrived"):
    """Body of DONE, caller to callee: the answers to these calls arrived, forget them."""

    message_ids: tuple[int, ...]


class Routed(Message, frozen=True, kw_only=True, tag="routed"):
    """Body of ROUTED where it tells of more calls than the one in its header: their message ids, in order."""

    message_ids: tuple[int, ...]


class Status(Message, frozen=True, kw_only=True, tag="status"):
    """Asks for the broker's figures."""


class PeerStatus(Part, frozen=True, kw_only=True):
    """One peer, as the broker sees it."""

    address: str
    kind: str
    pid: int
    session: str = ""
    authority: int = 0
    is_connected: bool = True
    is_suspended: bool = False
    queued_messages: int = 0
    queued_bytes: int = 0
    dropped: int = 0
    open_calls: int = 0


class StatusReport(Message, frozen=True, kw_only=True, tag="status-report"):
    """The broker's figures. Counters count since its start."""

    epoch: str
    pid: int
    uptime_ms: int
    wire_version: int
    software: str
    peers: tuple[PeerStatus, ...] = ()
    roles: tuple[RoleHolder, ...] = ()
    open_calls: int = 0
    counters: dict[str, int] = {}
    #: Messages per second over the last ten seconds or so.
    rates: dict[str, int] = {}


#: What passes through the broker, as envelopes: to exact subscribers with ``ADMIN``, droppable. Only the broker
#: publishes on topics that begin with ``OWN_TOPICS``.
OWN_TOPICS: Final = "pisub:broker:"
TRACE_TOPIC: Final = "pisub:broker:trace"


class Envelope(Part, frozen=True, kw_only=True):
    """What the broker reads of one message. Never its body."""

    #: '' is the broker itself, or a connection that has not said Hello.
    sender: str = ""
    incarnation: int = 0
    #: One of ``Kind``; 0 for a frame that could not be read.
    kind: int = 0
    priority: int = 0
    message_id: int = 0
    correlation_id: int = 0
    scope: str = ""
    topic: str = ""
    to: str = ""
    #: Of the role for which the sender speaks; 0 for none.
    generation: int = 0
    ttl_ms: int = 0
    flags: int = 0
    trace: str = ""
    #: Of the body, or of the whole frame where it could not be read.
    body_bytes: int = 0


class Traced(Message, frozen=True, kw_only=True, tag=TRACE_TOPIC):
    """Messages that the broker got or said, in order."""

    envelopes: tuple[Envelope, ...]


class Shutdown(Message, frozen=True, kw_only=True, tag="shutdown"):
    """Asks the broker to leave. Nothing is lost by it: clients find or start the next one."""


class Leaving(Message, frozen=True, kw_only=True, tag="leaving"):
    """The broker leaves: idle, told to, or its directory is gone. Find the next one."""

    reason: str


#: Bodies of CONTROL frames.
ControlRequest = Claim | Release | FindRole | Subscribe | Unsubscribe | Watch | Unwatch | Status | Shutdown
#: Bodies of what the broker answers or sends of itself.
BrokerMessage = (
    Welcome
    | Failure
    | Claimed
    | RoleGranted
    | RoleHolder
    | Terminated
    | Routed
    | Done
    | StatusReport
    | Leaving
    | Traced
)
