"""A peer as the broker knows it: one address, one incarnation of it, connected or not.

Owns the record of one peer. What is decided over several peers is in ``state`` and its users. No sockets here.
"""

from __future__ import annotations

from pisub.process import ProcessIdentity
from pisub.protocol import codec
from pisub.protocol.delivery import Stamp
from pisub.protocol.session import Authority, PeerKind, Subscription

from .mailbox import Mailbox

#: A role's name and the session in which it is meant.
RoleKey = tuple[str, str]


class Peer:
    """One incarnation of one address.

    Attributes:
        bound_name: ``address@incarnation``: what a call is bound to.
        route: The connection, or None while there is none.
        process: The kernel's word on who it is; None where the kernel does not say.
        ancestors: Pids of the process's parents.
        may_call: Whether it may send messages to others.
        confined_to: The only session whose published messages it may see; None is every session.
        stamp: What its messages are stamped with, encoded once.
        calls: Its open calls: message id to the bound callee and the deadline (0.0 is none).
        serving: How many open calls are bound to it.
        is_slow: Whether a message to it cannot simply be sent: no connection, a queue, or a gap to tell of.
        resume_by: When a lost connection counts as a lost peer; None while connected, or kept while the process lives.
        was_cut_off: Whether the broker broke its connection because it did not read.
        needs_resync: Whether messages to it may have been dropped or lost since its last Welcome.
    """

    __slots__ = (
        "address",
        "ancestors",
        "authority",
        "bound_name",
        "calls",
        "confined_to",
        "generations",
        "incarnation",
        "is_slow",
        "is_suspended",
        "kind",
        "mailbox",
        "may_call",
        "needs_resync",
        "process",
        "resume_by",
        "roles",
        "route",
        "serving",
        "session",
        "stamp",
        "subscriptions",
        "waits_for",
        "was_cut_off",
        "watches",
    )

    def __init__(
        self,
        address: str,
        incarnation: int,
        *,
        kind: PeerKind,
        session: str,
        process: ProcessIdentity | None,
        ancestors: tuple[int, ...],
    ) -> None:
        self.address = address
        self.incarnation = incarnation
        self.bound_name = f"{address}@{incarnation}"
        self.kind = kind
        self.session = session
        self.process = process
        self.ancestors = ancestors
        self.authority = 0
        self.may_call = False
        self.confined_to: str | None = None
        self.stamp = b""
        self.route: bytes | None = None
        self.calls: dict[int, tuple[Peer, float]] = {}
        self.serving = 0
        self.roles: dict[RoleKey, int] = {}
        self.generations: set[int] = set()
        self.waits_for: set[RoleKey] = set()
        self.subscriptions: set[Subscription] = set()
        self.watches: set[str] = set()
        self.mailbox = Mailbox()
        self.is_slow = True
        self.is_suspended = False
        self.resume_by: float | None = None
        self.needs_resync = False
        self.was_cut_off = False

    def authorise(self, bits: int, *, confined_to: str | None, epoch: str) -> None:
        """Set what the peer may do, and the stamp that says so."""
        self.authority = bits
        self.may_call = bool(bits & Authority.CALL)
        self.confined_to = confined_to
        self.stamp = codec.pack_stamp(
            Stamp(sender=self.address, incarnation=self.incarnation, authority=bits, epoch=epoch)
        )

    def refresh_pace(self) -> None:
        """Find out whether a message may be sent past the mailbox: only when nothing waits there, nor a gap."""
        self.is_slow = self.route is None or self.is_suspended or self.mailbox.gap > 0
