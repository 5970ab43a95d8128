"""The broker's process in a simulation: a real core, played pipes, a played kernel."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from broker.core import Core
from broker.effects import Disconnect, Forget, Leave, Outcome, Send, UnwatchProcess, WatchProcess
from broker.events import Accepted, ConnectionLost, Event, ProcessDied, SendFailed
from broker.state import Limits
from pisub.process import ProcessIdentity
from pisub.protocol.bundle import frames_of

from .links import Pipes

if TYPE_CHECKING:
    from .world import World


def process(pid: int, start_ticks: int = 1) -> ProcessIdentity:
    return ProcessIdentity(pid=pid, start_ticks=start_ticks, boot_id="boot", machine_id="machine", pid_namespace=1)


class BrokerProcess:
    """One life of the broker."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.epoch = f"epoch-{number}"
        self.core = Core(epoch=self.epoch, broker=process(1, number), now=world.now, limits=Limits(settle_s=1.0))
        self.links: dict[bytes, Pipes] = {}
        self.lost: deque[Pipes] = deque()
        self.watched: dict[ProcessIdentity, None] = {}
        self.is_stopped = False
        self.has_left = False

    # What happens to it. -------------------------------------------------------------------------------------

    def connect(self, link: Pipes) -> None:
        self.links[link.route] = link

    def read(self, link: Pipes, count: int) -> None:
        """Take the first messages of one connection, as one batch."""
        items: list[tuple[bytes, bytes]] = []
        while link.up and len(items) < count:
            items += [(link.route, frame) for frame in frames_of(link.up.popleft())]
        if not link.is_accepted:
            link.is_accepted = True
            node = link.owner
            known = node.process if node.is_alive else None
            self.handle(Accepted(link.route, is_same_user=True, pid=node.process.pid, process=known))
        self.apply(self.core.handle_batch(items, self.world.now))
        for peer in self.core.state.peers.values():
            peer.mailbox.limit_bytes = self.world.mailbox_bytes

    def handle(self, event: Event) -> None:
        self.apply(self.core.handle(event, self.world.now))

    def note_lost(self) -> None:
        """Handle the oldest broken connection whose last words were read."""
        for link in self.lost:
            if not link.up:
                self.lost.remove(link)
                self.handle(ConnectionLost(link.route))
                return

    def note_death(self, gone: ProcessIdentity) -> None:
        del self.watched[gone]
        self.handle(ProcessDied(gone))

    def dead(self) -> list[ProcessIdentity]:
        """Return watched processes that are gone and whose last words were read or waited for."""
        if not self.world.dead:
            return []
        return [each for each in self.watched if each in self.world.dead]

    def tick(self) -> None:
        if self.world.now >= self.core.next_deadline():
            self.apply(self.core.tick(self.world.now))

    def retry(self) -> None:
        """Send what waits, to everybody who has room."""
        for route in self.core.suspended_routes():
            link = self.links.get(route)
            if link is None:
                continue
            sends = self.core.next_queued(route, 4)
            failed = [each for send in sends if (each := self._send(send)) is not None]
            self.core.handed_over(route, len(sends) - len(failed))
            if failed and failed[0].is_gone:
                self.handle(ConnectionLost(route))

    # What it does. -------------------------------------------------------------------------------------------

    def apply(self, outcome: Outcome) -> None:
        failed = [each for send in outcome.sends if (each := self._send(send)) is not None]
        if failed:
            self.apply(self.core.sends_failed(failed, self.world.now))
        for effect in outcome.effects:
            match effect:
                case WatchProcess(process=watched):
                    self.watched[watched] = None
                case UnwatchProcess(process=watched):
                    self.watched.pop(watched, None)
                case Disconnect(route):
                    if route in self.links:
                        self.world.break_link(self.links[route])
                case Forget(route):
                    self.links.pop(route, None)
                case Leave():
                    self.has_left = True

    def _send(self, send: Send) -> SendFailed | None:
        route, stamp, frame = send
        link = self.links.get(route)
        if link is None or not link.is_open:
            return SendFailed(route, stamp, frame, is_gone=True)
        if len(link.down) >= link.capacity:
            return SendFailed(route, stamp, frame)
        link.down.append((stamp, frame))
        return None
