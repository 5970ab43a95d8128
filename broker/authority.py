"""Who may send what: one table, and how a peer's bits are found.

Owns the table. It must not know sockets or the state of a peer beyond what it is given.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from pisub.protocol.base import Message
from pisub.protocol.checkpoint import HOST_ROLE
from pisub.protocol.delivery import Kind
from pisub.protocol.session import (
    Authority,
    Claim,
    FindRole,
    Release,
    Shutdown,
    Status,
    Subscribe,
    Unsubscribe,
    Unwatch,
    Watch,
)

#: Kinds that a client may send, and the bit of ``Authority`` that each needs; 0 needs none.
KIND_NEEDS: Final[Mapping[int, int]] = {
    Kind.HELLO: 0,
    Kind.GOODBYE: 0,
    Kind.TELL: Authority.CALL,
    Kind.CALL: Authority.CALL,
    Kind.REPLY: Authority.CALL,
    Kind.FAIL: Authority.CALL,
    Kind.PUBLISH: Authority.CALL,
    Kind.DONE: Authority.CALL,
    Kind.CONTROL: 0,
}

#: What each request to the broker itself needs beyond ``KIND_NEEDS[Kind.CONTROL]``.
CONTROL_NEEDS: Final[Mapping[type[Message], int]] = {
    Claim: Authority.CLAIM,
    Release: Authority.CLAIM,
    FindRole: 0,
    Subscribe: 0,
    Unsubscribe: 0,
    Watch: 0,
    Unwatch: 0,
    Status: 0,
    Shutdown: Authority.ADMIN,
}

#: What a call or a tell to a role needs beyond its kind; a role that is not here needs nothing more.
ROLE_NEEDS: Final[Mapping[str, int]] = {f"role:{HOST_ROLE}": Authority.ASK}


def granted(*, is_same_user: bool, pid: int, ancestors: Collection[int], runner_pids: Collection[int]) -> int:
    """Return the bits that the kernel's word gives a peer.

    Args:
        is_same_user: Whether the peer's uid is the broker's.
        pid: Its process; 0, where the kernel does not say, is treated as a child: its descent cannot be checked.
        ancestors: Its parents' pids.
        runner_pids: Processes of live runners. A runner itself is no child of its own.
    """
    if not is_same_user:
        return 0
    if pid == 0 or any(ancestor in runner_pids for ancestor in ancestors):
        return Authority.CHILD
    return Authority.OWNER


def grant_of_process(bits: int, *, runners: Collection[int], outer_runners: Collection[int], is_runner: bool) -> int:
    """Return the bits that remain when the asking of those whose process, or descendant, a peer is, is looked at.

    A runner whose agent may not ask says so in its Hello. No other connection of its process has more; and a runner
    that is another's descendant may ask where that one may, though a child itself may not: its runner asks for it.

    Args:
        bits: What the kernel's word gives.
        runners: The bits of the runners of the same process.
        outer_runners: The bits of the live runners that it descends from.
        is_runner: Whether it says that it is a runner.
    """
    if is_runner and outer_runners and all(each & Authority.ASK for each in outer_runners):
        bits |= Authority.ASK
    if not all(each & Authority.ASK for each in runners):
        bits &= ~Authority.ASK
    return bits


def narrowed(bits: int, wish: int | None) -> int:
    """Return the bits that remain when a Hello wants at most ``wish``. A wish never adds one."""
    return bits if wish is None else bits & wish
