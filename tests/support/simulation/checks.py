"""What must hold in every history: while it runs, when the dust has settled, and when everything is closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pisub.client.bus_core import Phase
from pisub.client.bus_types import Incoming, Sender
from pisub.errors import NotDeliveredError, PisubError, StaleGenerationError
from pisub.protocol import codec
from pisub.protocol.delivery import Kind, Priority
from pisub.protocol.session import Terminated

from .messages import Worked
from .transcript import described

if TYPE_CHECKING:
    from .nodes import Node
    from .world import World

_ANSWERING = frozenset((Kind.REPLY, Kind.FAIL))
#: name of the holder, its generation, names of who waits
RoleView = tuple[str, int, list[str]]


class BrokenPromiseError(Exception):
    """A history in which something happened that must not, or did not that must."""


class CallRecord:
    __slots__ = ("caller", "is_idempotent", "key", "outcome", "runs", "to")

    def __init__(self, key: int, caller: Node, to: str, *, is_idempotent: bool) -> None:
        self.key = key
        self.caller = caller
        self.to = to
        self.is_idempotent = is_idempotent
        self.outcome: object = None
        self.runs: list[str] = []


class NoteRecord:
    """A told or published message, and whose pipes it has to come out of while nothing of the way breaks."""

    __slots__ = ("due", "epoch", "link", "sender")

    def __init__(self, sender: Node, due: list[Node]) -> None:
        self.sender = sender
        self.link = None if sender.notices else sender.link
        self.epoch = sender.core.epoch
        self.due = [(each, each.link, each.unsubscribed) for each in due]


class WatchRecord:
    __slots__ = ("address", "checks", "count", "incarnation", "is_void", "watcher")

    def __init__(self, checks: Checks, watcher: Node, address: str) -> None:
        self.checks = checks
        self.watcher = watcher
        self.address = address
        self.count = 0
        self.incarnation = 0
        self.is_void = False

    def __call__(self, gone: Terminated) -> None:
        self.count += 1
        if self.incarnation and gone.incarnation != self.incarnation:
            self.checks.fail(f"{self.watcher.name} watches {self.address}@{self.incarnation}, and was told {gone}")
        if self.count > 1:
            self.checks.fail(f"{self.watcher.name} was told twice that {self.address} is gone")


class Checks:
    def __init__(self, world: World) -> None:
        self.world = world
        self.calls: list[CallRecord] = []
        self.notes: list[NoteRecord] = []
        self.watches: list[WatchRecord] = []
        self.got: set[tuple[int, str]] = set()
        self._last: dict[tuple[str, str, str, bool], int] = {}
        self._seen: set[tuple[str, str, int]] = set()
        self._sent: dict[tuple[str, int], int] = {}
        self._generations: dict[tuple[str, str], tuple[str, int]] = {}
        self._roles: dict[str, RoleView] = {}
        self._roles_of = ""

    def fail(self, what: str) -> NoReturn:
        raise BrokenPromiseError(what)

    # Calls. --------------------------------------------------------------------------------------------------

    def call_begins(self, caller: Node, to: str, *, is_idempotent: bool) -> CallRecord:
        record = CallRecord(len(self.calls), caller, to, is_idempotent=is_idempotent)
        self.calls.append(record)
        return record

    def ran(self, node: Node, key: int, sender: Sender) -> None:
        record = self.calls[key]
        if (sender.address, sender.incarnation) != (record.caller.address, record.caller.incarnation):
            self.fail(f"call {key} of {record.caller.name} ran as one of {sender}")
        if node.name in record.runs:
            self.fail(f"call {key} ran twice in {node.name}")
        if record.runs and not record.is_idempotent:
            self.fail(f"call {key} may not be repeated, and ran in {record.runs[0]} and {node.name}")
        record.runs.append(node.name)
        if isinstance(record.outcome, NotDeliveredError):
            self.fail(f"call {key} was not delivered, and then ran in {node.name}")

    def call_ended(self, record: CallRecord, result: bytes | None, error: PisubError | None) -> None:
        key = record.key
        if record.outcome is not None:
            self.fail(f"call {key} ended twice")
        if self.world.transcript is not None:
            self.world.note(f"    call {key} ended: {'answered' if error is None else error.code}")
        if result is not None:
            worked = codec.decode(result, Worked)
            record.outcome = worked
            if worked.key != key:
                self.fail(f"call {key} got the answer to call {worked.key}")
            if not any(name.endswith(f"@{worked.by}") for name in record.runs):
                self.fail(f"call {key} was answered by {worked.by}, which never ran it")
            return
        record.outcome = error
        if isinstance(error, NotDeliveredError | StaleGenerationError) and record.runs:
            self.fail(f"call {key} ended {error.code}, and ran in {record.runs}")
        if error is not None and error.code == "as_told" and not record.runs:
            self.fail(f"call {key} got an error of a callee that never ran it")

    # Messages. -----------------------------------------------------------------------------------------------

    def note_begins(self, sender: Node, due: list[Node]) -> int:
        self.notes.append(NoteRecord(sender, due))
        return len(self.notes) - 1

    def told(self, node: Node, number: int, sender: Sender) -> None:
        said = self.notes[number].sender
        if (sender.address, sender.incarnation) != (said.address, said.incarnation):
            self.fail(f"note {number} of {said.name} came as one of {sender}")
        self.got.add((number, node.name))

    def published(self, node: Node, number: int, incoming: Incoming) -> None:
        self.told(node, number, incoming.sender)

    def sent(self, node: Node, frame: bytes) -> None:
        header, body = codec.unpack(frame)
        if header.kind == Kind.CALL:
            key = (node.name, header.message_id)
            self._sent[key] = self._sent.get(key, 0) + 1
        if self.world.transcript is not None:
            self.world.note(f"    {node.name} sends {described(header, body)}")

    def delivered(self, node: Node, stamp_frame: bytes, frame: bytes) -> None:
        stamp, (header, body) = codec.unpack_stamp(stamp_frame), codec.unpack(frame)
        if self.world.transcript is not None:
            self.world.note(f"    {node.name} gets {described(header, body)} of {stamp.sender or stamp.epoch}")
        if not stamp.sender:
            return
        kind = header.kind
        if kind in _ANSWERING:
            if header.to != node.name:
                self.fail(f"{node.name} got an answer meant for {header.to}")
            return
        if kind == Kind.DONE:
            return
        name = f"{stamp.sender}@{stamp.incarnation}"
        if header.fence is not None:
            self._check_fence(node, stamp.epoch, header.fence.epoch, header.fence.generation, header.trace)
        if kind == Kind.CALL and self._sent[name, header.message_id] > 1:
            return
        unique = (node.name, name, header.message_id)
        if unique in self._seen:
            self.fail(f"{node.name} got message {header.message_id} of {name} twice")
        self._seen.add(unique)
        line = (
            node.name,
            name,
            header.to if header.to.startswith("role:") else "",
            header.priority == Priority.CONTROL,
        )
        if self._last.get(line, 0) > header.message_id:
            self.fail(f"{node.name} got message {header.message_id} of {name} behind {self._last[line]}")
        self._last[line] = header.message_id

    def _check_fence(self, node: Node, epoch: str, fence_epoch: str, generation: int, role: str) -> None:
        if epoch != fence_epoch:
            self.fail(f"{node.name} got a message with a fence of {fence_epoch} from {epoch}")
        before = self._generations.get((node.name, role))
        if before is not None and before[0] == epoch and before[1] > generation:
            self.fail(f"{node.name} heard holder {generation} of {role} after holder {before[1]}")
        self._generations[node.name, role] = (epoch, generation)

    # Watches. ------------------------------------------------------------------------------------------------

    def watch_begins(self, watcher: Node, address: str) -> WatchRecord:
        record = WatchRecord(self, watcher, address)
        self.watches.append(record)
        return record

    # Roles. --------------------------------------------------------------------------------------------------

    def roles(self, actor: str) -> None:
        """Compare the broker's roles with those before the last thing that happened to it, by ``actor``'s doing."""
        broker = self.world.broker
        if broker is None:
            return
        state = broker.core.state
        before = self._roles if self._roles_of == broker.epoch else {}
        now: dict[str, RoleView] = {}
        for (name, _), role in state.roles.items():
            holder = role.holder.bound_name if role.holder is not None else ""
            now[name] = (holder, role.generation, [peer.bound_name for peer, _ in role.waiting])
        if now == before:
            return
        self._roles, self._roles_of = now, broker.epoch
        if not state.is_settled:
            return
        for name, (holder, generation, waiting) in now.items():
            was_holder, was_generation, was_waiting = before.get(name, ("", 0, []))
            queue = [each for each in was_waiting if each != actor]
            stayed = [each for each in queue if each in waiting]
            if [each for each in waiting if each != actor][: len(stayed)] != stayed:
                self.fail(f"the queue for {name} went from {was_waiting} to {waiting}")
            if generation < was_generation or (holder not in ("", was_holder) and generation == was_generation):
                self.fail(f"{name} went to {holder} with the generation {generation}")
            ahead = queue[: queue.index(holder)] if holder in queue else queue
            if holder not in ("", was_holder) and any(each in waiting for each in ahead):
                self.fail(f"{name} went to {holder}, past {queue}")
            if not holder and waiting:
                self.fail(f"nobody holds {name}, and {waiting} wait")

    def beliefs(self) -> None:
        """No two clients have the same valid number."""
        held: dict[object, str] = {}
        for node in self.world.nodes:
            for (role, _), claim in node.core._claims._table.items():
                fence = (role, node.core.epoch, claim.generation)
                if claim.generation and held.setdefault(fence, node.name) != node.name:
                    self.fail(f"{held[fence]} and {node.name} both speak for {role} with {fence}")

    # When the dust has settled. ------------------------------------------------------------------------------

    def settled(self) -> None:
        for node in self.world.nodes:
            self._agrees(node)
        for record in self.calls:
            if record.outcome is None and record.caller in self.world.nodes:
                self.fail(f"call {record.key} of {record.caller.name} to {record.to} never ended")
        for number, note in enumerate(self.notes):
            self._arrived(number, note)
        present = {(node.address, life) for node in self.world.nodes for life in (0, node.incarnation)}
        for watch in self.watches:
            is_there = (watch.address, watch.incarnation) in present
            is_due = not watch.is_void and watch.watcher in self.world.nodes and not is_there
            if is_due and watch.count != 1:
                self.fail(f"{watch.watcher.name} was told {watch.count} times that {watch.address} is gone")

    def _agrees(self, node: Node) -> None:
        broker = self.world.broker
        assert broker is not None
        core, name = node.core, node.name
        peer = broker.core.state.peers.get(node.address)
        if core.phase is not Phase.ONLINE or core.epoch != broker.epoch or peer is None:
            self.fail(f"{name} is {core.phase} at {core.epoch}, and the broker of {broker.epoch} has {peer}")
        if peer.incarnation != node.incarnation or node.link is None or peer.route != node.link.route:
            self.fail(f"the broker takes another life or connection for {name}")
        held = {role: fence.generation for role, fence in node.fences().items()}
        if held != {key[0]: generation for key, generation in peer.roles.items()}:
            self.fail(f"{name} holds {held}, and the broker says {peer.roles}")
        claims = core._claims._table
        waits_for = {key for key, claim in claims.items() if claim.request.wait and not claim.generation}
        if waits_for != peer.waits_for:
            self.fail(f"{name} waits for {waits_for}, and the broker says {peer.waits_for}")
        for key in claims:
            if broker.core.state.roles.holder(key) is None:
                self.fail(f"{name} wants {key}, and nobody has it")
        if set(core.subscriptions) != peer.subscriptions:
            self.fail(f"{name} subscribed {set(core.subscriptions)}, and the broker says {peer.subscriptions}")
        if not set(core.watches) <= peer.watches:
            self.fail(f"{name} watches {set(core.watches)}, and the broker says {peer.watches}")
        if core.calls or core.outbox:
            self.fail(f"{name} has {len(core.calls)} open calls and {len(core.outbox)} waiting frames")
        if len(peer.mailbox) or peer.calls or peer.serving:
            self.fail(f"the broker keeps {len(peer.mailbox)} messages, {peer.calls}, {peer.serving} for {name}")

    def _arrived(self, number: int, note: NoteRecord) -> None:
        broker = self.world.broker
        if broker is None or note.epoch != broker.epoch or note.link is None or note.link is not note.sender.link:
            return
        for node, link, unsubscribed in note.due:
            is_as_before = node in self.world.nodes and node.link is link and node.unsubscribed == unsubscribed
            if is_as_before and (number, node.name) not in self.got:
                self.fail(f"note {number} of {note.sender.name} never came to {node.name}, and nothing broke")

    # While it runs, and at the end. --------------------------------------------------------------------------

    def bounds(self) -> None:
        broker = self.world.broker
        if broker is not None:
            state = broker.core.state
            queued = sum(peer.mailbox.queued_bytes for peer in state.peers.values())
            if queued != state.queued_bytes:
                self.fail(f"{queued} bytes wait, and the broker counted {state.queued_bytes}")
            serving = sum(len(peer.calls) for peer in state.peers.values())
            if serving != sum(peer.serving for peer in state.peers.values()):
                self.fail("open calls and their callees do not add up")

    def closed(self) -> None:
        broker = self.world.broker
        if broker is None:
            return
        state = broker.core.state
        left = {
            "peers": state.peers,
            "lives": state.lives,
            "routes": state.by_route,
            "strangers": state.strangers,
            "accepted": state.accepted,
            "watchers": state.watchers,
            "processes": state.by_process,
            "suspended": state.suspended,
            "runners": state.runners,
            "queued bytes": state.queued_bytes,
            "parked": broker.core._routing.parked_count,
            "watched processes": broker.watched,
            "held roles": [key for key, role in state.roles.items() if role.holder is not None or role.waiting],
            "receivers": [topic for topic in self.world.topics if state.topics.receivers(topic, "")],
        }
        kept = {what: each for what, each in left.items() if each}
        if kept:
            self.fail(f"everybody is gone, and the broker keeps {kept}")
