"""A broker core with fake connections, fake processes and a fake clock: tests drive it like a transcript."""

from __future__ import annotations

from typing import Any

import msgspec

from broker.core import Core
from broker.effects import Disconnect, Effect, Forget, Outcome, Send
from broker.events import Accepted, ConnectionLost, Event, ProcessDied, SendFailed
from broker.state import Limits
from pisub.process import ProcessIdentity
from pisub.protocol import codec
from pisub.protocol.base import Message
from pisub.protocol.delivery import Fence, Header, Kind, Stamp
from pisub.protocol.session import BrokerMessage, Hello, PeerKind

EPOCH = "epoch-1"
NOTHING: list[tuple[Any, ...]] = []


def process(pid: int, start_ticks: int = 1) -> ProcessIdentity:
    return ProcessIdentity(pid=pid, start_ticks=start_ticks, boot_id="boot", machine_id="machine", pid_namespace=1)


class Seen(msgspec.Struct, frozen=True):
    """One message as a client got it."""

    stamp: Stamp
    header: Header
    body: bytes

    @property
    def message(self) -> Any:
        """The body of a message of the broker's own."""
        return codec.decode(self.body, BrokerMessage)

    @property
    def brief(self) -> tuple[int, str, object]:
        """Kind, sender, and the body: decoded where the broker sent it."""
        if self.stamp.sender or not self.body:
            return self.header.kind, self.stamp.sender, self.body
        return self.header.kind, "", self.message


class Client:
    """One connection of one process, as its owner sees it."""

    def __init__(self, world: World, number: int, pid: int) -> None:
        self.world = world
        self.route = b"\0" + number.to_bytes(4, "big")
        self.process = process(pid)
        self.inbox: list[Seen] = []
        self.is_blocked = False
        self.is_gone = False
        self._last_id = 0

    def send(self, kind: int, body: Message | bytes = b"", **header: Any) -> int:
        """Send a frame; returns its message id."""
        self._last_id += 1
        header.setdefault("message_id", self._last_id)
        data = body if isinstance(body, bytes) else codec.encode(body)
        self.world.receive(self.route, codec.pack(Header(kind=kind, **header), data))
        return int(header["message_id"])

    def hello(self, address: str, **fields: Any) -> Client:
        fields = {"kind": PeerKind.CLIENT, "incarnation": 1, "process": self.process, "wire_versions": (1,), **fields}
        self.send(Kind.HELLO, Hello(address=address, **fields))
        return self

    def control(self, request: Message, **header: Any) -> Any:
        """Ask the broker and return its answer; other messages stay in the inbox."""
        number = self.send(Kind.CONTROL, request, **header)
        answer = next(each for each in self.inbox if each.header.correlation_id == number and not each.stamp.sender)
        self.inbox.remove(answer)
        return answer.message

    def call(self, to: str, body: bytes = b"?", **header: Any) -> int:
        return self.send(Kind.CALL, body, to=to, **header)

    def tell(self, to: str, body: bytes = b"!", **header: Any) -> int:
        return self.send(Kind.TELL, body, to=to, **header)

    def publish(self, topic: str, body: bytes = b"!", **header: Any) -> int:
        return self.send(Kind.PUBLISH, body, topic=topic, **header)

    def reply(self, to: str, call: int, body: bytes = b"=", **header: Any) -> int:
        return self.send(Kind.REPLY, body, to=to, correlation_id=call, **header)

    def take(self) -> list[Seen]:
        """Return what came, and empty the inbox."""
        came, self.inbox = self.inbox, []
        return came

    def briefs(self) -> list[tuple[int, str, object]]:
        return [each.brief for each in self.take()]

    def lose_connection(self) -> None:
        self.is_gone = True
        self.world.handle(ConnectionLost(self.route))

    def die(self) -> None:
        self.is_gone = True
        self.world.handle(ProcessDied(self.process))


class World:
    """The broker and its clients."""

    def __init__(self, *, settle_s: float = 0.0, **limits: Any) -> None:
        self.now = 1000.0
        self.core = Core(
            epoch=EPOCH, broker=process(1), software="test", now=self.now, limits=Limits(settle_s=settle_s, **limits)
        )
        self.clients: dict[bytes, Client] = {}
        self.effects: list[Effect] = []

    def connect(self, *, pid: int | None = None, **accepted: Any) -> Client:
        """Open a connection that has said nothing yet; each is of its own process unless ``pid`` says otherwise."""
        number = len(self.clients) + 1
        client = Client(self, number, pid or 100 + number)
        self.clients[client.route] = client
        fields = {"is_same_user": True, "pid": client.process.pid, "process": client.process, **accepted}
        self.handle(Accepted(route=client.route, **fields))
        return client

    def join(self, address: str, *, pid: int | None = None, ancestors: tuple[int, ...] = (), **hello: Any) -> Client:
        """Connect, say Hello, and swallow the Welcome."""
        client = self.connect(pid=pid, ancestors=ancestors).hello(address, **hello)
        assert client.inbox[0].header.kind == Kind.WELCOME, client.inbox[0].brief
        del client.inbox[0]
        return client

    def receive(self, route: bytes, frame: bytes) -> None:
        self.apply(self.core.handle_batch([(route, frame)], self.now))

    def handle(self, event: Event) -> None:
        self.apply(self.core.handle(event, self.now))

    def advance(self, seconds: float) -> None:
        """Let time pass, ticking as the shell would."""
        end = self.now + seconds
        while (due := self.core.next_deadline()) <= end:
            self.now = max(due, self.now)
            self.apply(self.core.tick(self.now))
        self.now = end

    def apply(self, outcome: Outcome) -> None:
        blocked: set[bytes] = set()
        for send in outcome.sends:
            self._deliver(send, blocked)
        self.effects.extend(outcome.effects)
        for effect in outcome.effects:
            if isinstance(effect, Disconnect) and effect.route in self.clients:
                self.clients[effect.route].is_gone = True

    def _deliver(self, send: Send, blocked: set[bytes]) -> None:
        client = self.clients[send[0]]
        if client.is_gone or client.is_blocked or send[0] in blocked:
            blocked.add(send[0])
            self.apply(self.core.handle(SendFailed(*send, is_gone=client.is_gone), self.now))
            return
        body = codec.unpack(send[2])
        client.inbox.append(Seen(codec.unpack_stamp(send[1]), body[0], bytes(body[1])))

    def retry(self) -> None:
        """Send what waits, to those who read again."""
        for route in self.core.suspended_routes():
            client = self.clients[route]
            while not client.is_blocked and (sends := self.core.next_queued(route, 3)):
                for send in sends:
                    self._deliver(send, set())
                self.core.handed_over(route, len(sends))

    def counter(self, name: str) -> int:
        return self.core.state.counters[name]

    def fence(self, generation: int) -> Fence:
        return Fence(EPOCH, generation)

    @property
    def forgotten(self) -> list[bytes]:
        return [each.route for each in self.effects if isinstance(each, Forget)]
