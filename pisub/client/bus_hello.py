"""What a client says of itself at the beginning of every connection. Pure, but for the making of an identity.

Owns how much of it fits into one Hello. What it holds is the core's to know.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Self

import msgspec

from pisub.errors import InvalidArgumentError
from pisub.ids import is_address, new_id
from pisub.process import ProcessIdentity, own_identity
from pisub.protocol.bundle import CAPABILITY
from pisub.protocol.codec import encode, pack
from pisub.protocol.delivery import Header, Kind, Priority
from pisub.protocol.limits import KIB
from pisub.protocol.session import HeldRole, Hello, PeerKind, Subscription
from pisub.protocol.version import WIRE_VERSIONS
from pisub.version import __version__

#: Subscriptions and watches that a Hello holds; the others follow as requests. With 256 roles it still fits.
_HELLO_BUDGET_BYTES = 24 * KIB

Stated = tuple[list[Subscription], list[str]]


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who this client is, in every Hello."""

    kind: PeerKind
    address: str
    incarnation: int
    process: ProcessIdentity
    session: str = ""
    software: str = ""
    #: Bits of ``Authority`` that it wants at most; None is all that it can get.
    authority: int | None = None

    @classmethod
    def of_this_process(
        cls, kind: PeerKind, address: str | None, session: str, *, authority: int | None = None
    ) -> Self:
        """Make a new life of an address, or of a new one.

        Raises:
            InvalidArgumentError: It is no address.
        """
        if address is not None and not is_address(address):
            raise InvalidArgumentError(f"{address!r} is not an address.", field="address")
        return cls(
            kind=kind,
            address=address or f"{kind}:{new_id()}",
            incarnation=time.time_ns(),
            process=own_identity(),
            session=session,
            software=f"pisub/{__version__}",
            authority=authority,
        )


def split_stated(subscriptions: Iterable[Subscription], watches: Iterable[str]) -> tuple[Stated, Stated]:
    """Divide subscriptions and watches into those that a Hello has room for, and the rest."""
    fits, rest = (list[Subscription](), list[str]()), (list[Subscription](), list[str]())
    left = _HELLO_BUDGET_BYTES
    for subscription in subscriptions:
        left -= 4 * (len(subscription.topic) + len(subscription.scope)) + 48
        (fits if left > 0 else rest)[0].append(subscription)
    for address in watches:
        left -= len(address) + 3
        (fits if left > 0 else rest)[1].append(address)
    return fits, rest


def hello_frame(identity: Identity, message_id: int, roles: tuple[HeldRole, ...], stated: Stated) -> bytes:
    """Make a Hello."""
    subscriptions, watches = stated
    body = encode(
        Hello(
            wire_versions=WIRE_VERSIONS,
            kind=identity.kind,
            address=identity.address,
            incarnation=identity.incarnation,
            process=identity.process,
            session=identity.session,
            software=identity.software,
            capabilities=(CAPABILITY,),
            authority=identity.authority,
            roles=roles,
            subscriptions=tuple(subscriptions),
            watches=tuple(watches),
        )
    )
    return pack(Header(kind=Kind.HELLO, priority=Priority.CONTROL, message_id=message_id), body)
