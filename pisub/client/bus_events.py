"""What the bus's core tells its shell to do, as one closed union."""

from __future__ import annotations

import msgspec

from pisub.client.bus_calls import PendingCall
from pisub.client.bus_types import BusState
from pisub.errors import PisubError
from pisub.protocol.session import Claim, RoleGranted, Terminated


class FindBroker(msgspec.Struct, frozen=True):
    """Look for a broker, or start one, in a thread; then say ``found`` or ``not_found``."""


class Dial(msgspec.Struct, frozen=True):
    """Connect to this address, leaving any connection there is."""

    address: str


class HangUp(msgspec.Struct, frozen=True):
    """Leave the connection: the broker behind it goes, or does not answer."""


class End(msgspec.Struct, frozen=True):
    """A call ended without a reply."""

    call: PendingCall
    error: PisubError


class Announce(msgspec.Struct, frozen=True):
    """Tell the handlers of the state."""

    state: BusState


class Granted(msgspec.Struct, frozen=True):
    """Tell the handlers of roles: this client holds one now, or holds it under a new number."""

    role: RoleGranted


class Gone(msgspec.Struct, frozen=True):
    """Tell the handlers who watch it that a peer is gone."""

    message: Terminated


class Skip(msgspec.Struct, frozen=True):
    """What came makes no sense: skip whatever else belongs to the same message."""


class Reclaim(msgspec.Struct, frozen=True):
    """A role that this client held or awaited was not in the Welcome: claim it again, by ``BusCore.reclaim``."""

    claim: Claim


class Rejected(msgspec.Struct, frozen=True):
    """There is no way in: the broker refused the Hello, or none was found. The core goes on trying."""

    error: PisubError


Effect = End | FindBroker | Dial | HangUp | Announce | Granted | Gone | Reclaim | Rejected | Skip
