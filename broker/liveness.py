"""What the kernel knows of peers: who they are, whose children, and when they go.

Owns the pidfds, in one epoll descriptor, and the descriptor budget. It must not know sockets of ZeroMQ or the core.
"""

from __future__ import annotations

import os
import resource
import select

import msgspec

from pisub.errors import BrokerUnavailableError
from pisub.process import Liveness, ProcessIdentity, identify, liveness, open_pidfd, read_stat

#: Parents are followed this far: deeper trees than any that we start, and an end where /proc is being rewritten.
_MAX_ANCESTORS = 64
#: Less is no budget: some thirty are its own, and each peer takes two.
MIN_DESCRIPTORS = 96
#: New peers are refused past this share of the descriptor limit, so that one is left to say so.
_FULL_SHARE = 0.9
#: Without pidfds, processes are looked at this often.
_LOOK_EVERY_S = 0.25


class Credentials(msgspec.Struct, frozen=True):
    """Who is at the other end of a local connection, by the kernel's word."""

    uid: int
    pid: int


def parse_peer_address(text: str) -> Credentials | None:
    """Read ``Peer-Address`` of an ipc connection: ``host:uid:gid:pid``; None where the kernel said nothing."""
    parts = text.rsplit(":", 3)
    if len(parts) != 4 or not (parts[1].isdecimal() and parts[3].isdecimal()):
        return None
    return Credentials(uid=int(parts[1]), pid=int(parts[3]))


def ancestors_of(pid: int) -> tuple[int, ...]:
    """Return the pids of a process's parents, nearest first, without init."""
    found: list[int] = []
    for _ in range(_MAX_ANCESTORS):
        try:
            stat = read_stat(pid)
        except PermissionError:
            break
        if stat is None or stat.parent_pid <= 1:
            break
        pid = stat.parent_pid
        found.append(pid)
    return tuple(found)


def raise_descriptor_limit() -> int:
    """Raise the soft limit of descriptors to the hard one and return it.

    Raises:
        BrokerUnavailableError: So few are allowed that no peer could be served. Who starts a broker hands it its own
            limits, but it serves everybody: one that can only refuse would stand in the way of the next.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < MIN_DESCRIPTORS:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (MIN_DESCRIPTORS, MIN_DESCRIPTORS))
        except (OSError, ValueError):
            raise BrokerUnavailableError(
                f"A broker needs {MIN_DESCRIPTORS} open files, and {hard} are allowed here (`ulimit -Hn`)."
            ) from None
        return MIN_DESCRIPTORS
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def watchable(pid: int) -> ProcessIdentity | None:
    """Return the identity of a live process; None when it is gone or has no start time to tell it by."""
    found = identify(pid)
    return None if found is None or found.start_ticks == 0 else found


class ProcessWatch:
    """Says which of the watched processes are gone.

    Attributes:
        fileno: The epoll descriptor: readable when a process went, or when another descriptor put into it is.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self.fileno = self._epoll.fileno()
        self._by_process: dict[ProcessIdentity, int] = {}
        self._by_descriptor: dict[int, ProcessIdentity] = {}
        self._without_descriptor: set[ProcessIdentity] = set()
        self._gone_at_once: list[ProcessIdentity] = []

    def __len__(self) -> int:
        """Return how many processes are watched."""
        return len(self._by_process) + len(self._without_descriptor)

    def add_reader(self, descriptor: int) -> None:
        """Let another descriptor make ``fileno`` readable too."""
        self._epoll.register(descriptor, select.EPOLLIN)

    def watch(self, process: ProcessIdentity) -> None:
        """Begin to watch; one that is gone is reported by the next ``gone``. Idempotent."""
        if process in self._by_process or process in self._without_descriptor:
            return
        try:
            descriptor = open_pidfd(process)
        except OSError:  # no pidfd in this kernel, or no descriptor left: look at /proc instead
            self._without_descriptor.add(process)
            return
        if descriptor is None:
            self._gone_at_once.append(process)
            return
        self._by_process[process] = descriptor
        self._by_descriptor[descriptor] = process
        self._epoll.register(descriptor, select.EPOLLIN)

    def unwatch(self, process: ProcessIdentity) -> None:
        """No longer watch. Idempotent."""
        self._without_descriptor.discard(process)
        descriptor = self._by_process.pop(process, None)
        if descriptor is not None:
            del self._by_descriptor[descriptor]
            self._epoll.unregister(descriptor)
            os.close(descriptor)

    def gone(self) -> list[ProcessIdentity]:
        """Return the processes that went since the last call, without waiting. They are watched no more."""
        found = self._gone_at_once
        self._gone_at_once = []
        for descriptor, _ in self._epoll.poll(0):
            process = self._by_descriptor.get(descriptor)
            if process is not None:
                found.append(process)
                self.unwatch(process)
        return found

    def look(self) -> list[ProcessIdentity]:
        """Look for the processes that have no pidfd. Call it every ``look_every_s``."""
        found = [each for each in self._without_descriptor if liveness(each) is Liveness.DEAD]
        self._without_descriptor.difference_update(found)
        return found

    @property
    def look_every_s(self) -> float | None:
        """How often ``look`` is needed; None when every process has a pidfd."""
        return _LOOK_EVERY_S if self._without_descriptor else None

    def close(self) -> None:
        """Close every descriptor."""
        for process in list(self._by_process):
            self.unwatch(process)
        self._epoll.close()


def is_full(used: int, limit: int) -> bool:
    """Tell whether so many descriptors are in use that new peers must be refused."""
    return used >= limit * _FULL_SHARE
