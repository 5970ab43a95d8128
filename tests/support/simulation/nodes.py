"""A client's process in a simulation: real core, receiver and callee; what ``Bus`` and its shell do is played here."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, assert_never

from pisub.client.bus_callee import Callee
from pisub.client.bus_calls import PendingCall
from pisub.client.bus_core import BusCore, Phase
from pisub.client.bus_events import (
    Announce,
    Dial,
    Effect,
    End,
    FindBroker,
    Gone,
    Granted,
    HangUp,
    Reclaim,
    Rejected,
    Skip,
)
from pisub.client.bus_handlers import Handlers
from pisub.client.bus_hello import Identity
from pisub.client.bus_outbox import Outbox, Outgoing
from pisub.client.bus_receive import Receiver
from pisub.client.bus_types import Incoming, Sender
from pisub.errors import NotDeliveredError, PisubError, RemoteError
from pisub.protocol.base import Message
from pisub.protocol.bundle import frames_of
from pisub.protocol.codec import decode, encode, pack
from pisub.protocol.delivery import Fence, Flag, Header, Kind, Priority
from pisub.protocol.session import (
    Claim,
    ControlRequest,
    Done,
    PeerKind,
    Release,
    Subscribe,
    Subscription,
    Watch,
)

from .broker import process
from .links import Pipes
from .messages import Note, Word, Work, Worked

if TYPE_CHECKING:
    from .world import World

LATER_PAUSE = "later"


class Waiter:
    """Stands for the future of a call: told once, and whoever waits wakes a little later."""

    __slots__ = ("error", "is_done", "node", "result", "then")

    def __init__(self, node: Node, then: Callable[[Waiter], None]) -> None:
        self.node = node
        self.then = then
        self.is_done = False
        self.result: bytes | None = None
        self.error: PisubError | None = None

    def set(self, result: bytes | None, error: PisubError | None) -> None:
        if self.is_done:
            self.node.world.checks.fail("a call ended twice")
        self.is_done, self.result, self.error = True, result, error
        self.node.wakes.append(self)


class Pause:
    """What a handler awaits that answers later."""

    def __await__(self) -> Generator[str, None, None]:
        yield LATER_PAUSE


class Node:
    """One life of one client."""

    def __init__(self, world: World, address: str, pid: int, incarnation: int) -> None:
        self.world = world
        self.address = address
        self.incarnation = incarnation
        self.name = f"{address}@{incarnation}"
        self.process = process(pid, incarnation)
        self.is_alive = True
        self.is_stopped = False
        self.is_closed = False
        self.is_searching = False
        self.is_dialled = False
        self.link: Pipes | None = None
        #: What connections that are gone still hold: it is read beside the new one's.
        self.residue: list[deque[tuple[bytes, bytes]]] = []
        self.notices: deque[bool] = deque()
        self.wakes: deque[Waiter] = deque()
        self.unsubscribed = 0
        self.confirmed: dict[Subscription, Pipes | None] = {}
        self.tasks: deque[Coroutine[Any, Any, None]] = deque()
        identity = Identity(kind=PeerKind.CLIENT, address=address, incarnation=incarnation, process=self.process)
        self.core = BusCore(identity)
        # As much smaller than in earnest as a peer's mailbox is, whose bound the answers to a bundle must not reach.
        self.core.outbox = Outbox(max_bundle_parts=4)
        self.handlers = Handlers(self._report)
        callee = Callee(self.core, self.handlers, post=self.post, spawn=self._spawn, report=self._report)
        self.receiver = Receiver(self.core, callee, lambda call, body: call.waiter.set(body, None))
        self.handlers.calls.add(Work, self._work)
        self.handlers.add_tell(Note, self._told)
        self.handlers.add_tell(Word, self._told_in_name)
        self.run(self.core.start())

    # Turns of the loop. --------------------------------------------------------------------------------------

    def read(self, pipe: deque[tuple[bytes, bytes]], count: int) -> None:
        checks = self.world.checks
        while pipe and count and self.is_alive:
            count -= 1
            stamp, frame = pipe.popleft()
            checks.delivered(self, stamp, frame)
            self.run(self.receiver.receive(stamp, frame, self.world.now))
        if not pipe and pipe in self.residue:
            self.residue.remove(pipe)
        self.turn()

    def notice(self) -> None:
        now = self.world.now
        self.run(self.core.link_up(now) if self.notices.popleft() else self.core.link_down(now))

    def turn(self) -> None:
        """Wake who waits, then send what fits."""
        self.wake()
        self.core.drain(self.send)
        self.core.arrived.tell_time(self.world.now)

    def wake(self) -> None:
        while self.wakes:
            waiter = self.wakes.popleft()
            waiter.then(waiter)

    def tick(self) -> None:
        at = self.core.next_deadline()
        if at is not None and at <= self.world.now:
            self.run(self.core.tick(self.world.now))
            self.turn()

    def finish_one(self) -> None:
        """Let a handler that answers later go on."""
        task = self.tasks.popleft()
        try:
            task.send(None)
        except StopIteration:
            return
        self.tasks.append(task)

    def send(self, message: bytes) -> bool:
        link = self.link
        if link is None or not link.has_room_up():
            return False
        link.up.append(message)
        for frame in frames_of(message):
            self.world.checks.sent(self, frame)
        return True

    def post(self, frame: bytes, header: Header, body: bytes = b"", call: PendingCall | None = None) -> None:
        is_quiet = self.world.random.random() < 0.7
        if not (is_quiet and self.core.hand_over(frame, call, self.send)):
            self.core.outbox.push(Outgoing(frame, header, body, call))

    def run(self, effects: Any) -> None:
        each: Effect
        for each in effects:
            match each:
                case End(call, error):
                    if call.waiter is not None:
                        call.waiter.set(None, error)
                case FindBroker():
                    self.is_searching = True
                case Dial():
                    self._leave_link()
                    self.is_dialled = True
                case HangUp():
                    self._leave_link()
                    self.is_dialled = False
                case Gone(message):
                    self.handlers.terminated(message)
                case Reclaim(claim):
                    self.core.reclaim(claim)
                case Announce() | Granted() | Rejected():
                    pass
                case Skip():
                    self.world.checks.fail("a frame of the broker made no sense")
                case _:
                    assert_never(each)

    def _leave_link(self) -> None:
        if self.link is not None:
            self.world.leave_link(self)

    # What Bus does. ------------------------------------------------------------------------------------------

    def call(
        self, to: str, *, timeout_s: float | None, is_idempotent: bool, mode: str, name: tuple[str, Fence | None]
    ) -> None:
        """Call ``to``, with ``name`` in that of a role."""
        role, fence = name
        record = self.world.checks.call_begins(self, to, is_idempotent=is_idempotent)
        ttl_ms = 0 if timeout_s is None else int(timeout_s * 1000)
        flags = Flag.IDEMPOTENT if is_idempotent else 0
        number = self.core.next_id()
        header = Header(Kind.CALL, Priority.NORMAL, number, 0, "", "", to, fence, ttl_ms, flags, role)

        def ended(waiter: Waiter) -> None:
            self.world.checks.call_ended(record, waiter.result, waiter.error)

        self._ask(header, encode(Work(key=record.key, mode=mode)), timeout_s, ended, is_repeatable=is_idempotent)

    def control(self, request: ControlRequest, then: Callable[[Waiter], None], *, timeout_s: float = 5.0) -> None:
        header = Header(
            kind=Kind.CONTROL, priority=Priority.CONTROL, message_id=self.core.next_id(), ttl_ms=int(timeout_s * 1000)
        )
        claim = request if isinstance(request, Claim) else None
        self._ask(header, encode(request), timeout_s, then, is_repeatable=True, claim=claim)

    def _ask(
        self,
        header: Header,
        body: bytes,
        timeout_s: float | None,
        then: Callable[[Waiter], None],
        *,
        is_repeatable: bool,
        claim: Claim | None = None,
    ) -> None:
        waiter = Waiter(self, then)
        deadline = None if timeout_s is None else self.world.now + timeout_s
        call = PendingCall(header, body, waiter, deadline, is_repeatable=is_repeatable, claim=claim)
        try:
            self.core.calls.open(call)
            self.post(pack(header, body), header, body, call)
        except PisubError as error:
            self.core.calls.close(header.message_id)
            waiter.set(None, error)

    def say(self, message: Message, *, kind: int, to: str = "", topic: str = "", priority: int, **rest: Any) -> bool:
        """Tell or publish; False when the outbox had no room."""
        body = encode(message)
        number = self.core.next_id()
        header = Header(kind=kind, priority=priority, message_id=number, to=to, topic=topic, **rest)
        try:
            self.post(pack(header, body), header, body)
        except PisubError:
            return False
        return True

    def claim(self, role: str, *, wait: bool) -> None:
        request = Claim(role=role, wait=wait)
        self.core.begin_claim(request)

        def ended(waiter: Waiter) -> None:
            if waiter.error is not None:
                self.core.give_up((role, ""))

        self.control(request, ended)

    def release(self, role: str) -> None:
        self.core.forget_claim((role, ""))

        def ended(waiter: Waiter) -> None:
            if waiter.error is not None:
                self.core.give_up((role, ""))

        self.control(Release(role=role), ended)

    def is_told_of(self, topic: str) -> bool:
        """Whether the broker confirmed, on this connection, a subscription that fits."""
        link = self.link
        return any(
            confirmed is link and (topic.startswith(wanted.topic) if wanted.is_prefix else topic == wanted.topic)
            for wanted, confirmed in self.confirmed.items()
        )

    def subscribe(self, topic: str, *, is_prefix: bool) -> None:
        subscription = Subscription(topic=topic, is_prefix=is_prefix)
        if subscription in self.core.subscriptions:
            return
        self.handlers.add_subscription(subscription, self._published)
        self.core.subscriptions[subscription] = None
        before = self.unsubscribed

        def ended(waiter: Waiter) -> None:
            if waiter.error is not None:
                self.unsubscribe(subscription)
            elif subscription in self.core.subscriptions and self.unsubscribed == before:
                # The word on a subscription that was taken back in between says nothing of the one made since.
                self.confirmed[subscription] = self.link

        self.control(Subscribe(topic=topic, is_prefix=is_prefix), ended)

    def unsubscribe(self, subscription: Subscription) -> None:
        self.confirmed.pop(subscription, None)
        self.unsubscribed += 1
        if not self.handlers.remove_subscription(subscription, self._published):
            return
        self.core.unsubscribe(subscription)

    def watch(self, address: str) -> None:
        if address in self.core.watches:
            return
        told = self.world.checks.watch_begins(self, address)
        self.handlers.add_watch(address, told)
        self.core.watches[address] = 0

        def ended(waiter: Waiter) -> None:
            if waiter.error is not None:
                self.core.watches.pop(address, None)
                self.handlers.remove_watch(address, told)
                told.is_void = True
            elif waiter.result is not None and not told.count:
                told.incarnation = decode(waiter.result, Done).incarnation
                self.core.note_watched(address, told.incarnation)

        self.control(Watch(address=address), ended)

    def goodbye(self) -> None:
        """Close in order."""
        self.is_closed = True
        if self.core.phase is Phase.ONLINE:
            header = Header(kind=Kind.GOODBYE, priority=Priority.CONTROL, message_id=self.core.next_id())
            self.post(pack(header), header)
            self.core.drain(self.send)
        self.run(self.core.close())
        self.wake()
        self.world.end_node(self, keeps_up=True)

    # Handlers. -----------------------------------------------------------------------------------------------

    def _work(self, message: Work, sender: Sender) -> Any:
        self.world.checks.ran(self, message.key, sender)
        if message.mode == "fail":
            raise RemoteError("as told", code="as_told")
        if message.mode == "relay":
            raise NotDeliveredError("to somebody else")
        worked = Worked(key=message.key, by=self.incarnation)
        return worked if message.mode == "now" else self._work_later(worked)

    @staticmethod
    async def _work_later(worked: Worked) -> Worked:
        await Pause()
        return worked

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        work.send(None)
        self.tasks.append(work)

    def _told(self, message: Note, sender: Sender) -> None:
        self.world.checks.told(self, message.number, sender)

    def _told_in_name(self, message: Word, sender: Sender) -> None:
        self.world.checks.told(self, message.number, sender)

    def _published(self, incoming: Incoming) -> None:
        self.world.checks.published(self, incoming.decode(Note).number, incoming)

    def _report(self, what: str, error: Exception) -> None:
        if not isinstance(error, PisubError):
            self.world.checks.fail(f"{what}: {error!r}")

    def fences(self) -> dict[str, Fence]:
        """Return what it could say now in the name of each role."""
        return {role: fence for role in self.world.roles if (fence := self.core.fence((role, ""))) is not None}
