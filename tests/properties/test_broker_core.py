"""The broker's core under input that nobody chose: it never raises, and it does what a naive model says."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from broker.core import Core
from broker.effects import Disconnect, Leave
from broker.events import Accepted, ConnectionLost, ProcessDied, SendFailed
from broker.state import Limits
from pisub.protocol import codec
from pisub.protocol.base import Message
from pisub.protocol.delivery import Fence, Header, Kind
from pisub.protocol.session import (
    Claim,
    Claimed,
    Failure,
    FindRole,
    HeldRole,
    Hello,
    PeerKind,
    Release,
    Routed,
    Status,
    Subscribe,
    Subscription,
    Terminated,
    Unsubscribe,
    Unwatch,
    Watch,
)
from tests.support.broker_world import EPOCH, Client, World, process

NAMES = st.sampled_from(["a", "b", "c", "run:x", "", "a b"])
ROLES = st.sampled_from(["host", "rpc", "", "Bad Role"])
SCOPES = st.sampled_from(["", "s", "t"])
TOPICS = st.sampled_from(["", "t", "run:1", "run:"])
ROUTE_OF = [b"\0\0\0\0" + bytes([number]) for number in range(3)]
ROUTES = st.sampled_from([*ROUTE_OF, b"\0\0\0\0\x09"])
INTEGERS = st.one_of(st.integers(0, 5), st.integers(-(2**63), 2**64 - 1))
TARGETS = st.one_of(
    st.sampled_from(["a", "b", "role:host", "a@0", "b@1", "a@7"]),
    NAMES,
    ROLES.map("role:{}".format),
    st.tuples(NAMES, INTEGERS).map(lambda pair: f"{pair[0]}@{pair[1]}"),
    st.text(max_size=20),
)

headers = st.builds(
    Header,
    kind=st.one_of(st.integers(3, 12), st.integers(0, 13), INTEGERS),
    priority=st.one_of(st.integers(0, 3), st.integers(-1, 4), INTEGERS),
    message_id=st.one_of(st.integers(1, 3), INTEGERS),
    correlation_id=st.one_of(st.integers(1, 3), INTEGERS),
    scope=SCOPES,
    topic=TOPICS,
    to=TARGETS,
    fence=st.one_of(st.none(), st.builds(Fence, epoch=st.sampled_from([EPOCH, ""]), generation=INTEGERS)),
    ttl_ms=INTEGERS,
    flags=INTEGERS,
    trace=st.text(max_size=5),
)
subscriptions = st.builds(Subscription, topic=TOPICS, is_prefix=st.booleans(), scope=SCOPES)
held_roles = st.builds(HeldRole, role=ROLES, scope=SCOPES, generation=INTEGERS, record_n=INTEGERS)
hellos = st.builds(
    Hello,
    wire_versions=st.sampled_from([(1,), (0, 1), (), (9,)]),
    kind=st.sampled_from(PeerKind),
    address=NAMES,
    incarnation=INTEGERS,
    process=st.integers(100, 103).map(process),
    session=SCOPES,
    authority=st.one_of(st.none(), INTEGERS),
    roles=st.lists(held_roles, max_size=3).map(tuple),
    subscriptions=st.lists(subscriptions, max_size=3).map(tuple),
    watches=st.lists(NAMES, max_size=3).map(tuple),
)
requests = st.one_of(
    st.builds(Claim, role=ROLES, scope=SCOPES, wait=st.booleans(), record_n=INTEGERS),
    st.builds(Release, role=ROLES, scope=SCOPES),
    st.builds(FindRole, role=ROLES, scope=SCOPES),
    st.builds(Subscribe, topic=TOPICS, is_prefix=st.booleans(), scope=SCOPES),
    st.builds(Unsubscribe, topic=TOPICS, is_prefix=st.booleans(), scope=SCOPES),
    st.builds(Watch, address=NAMES),
    st.builds(Unwatch, address=NAMES),
    st.just(Status()),
)
bodies = st.one_of(st.binary(max_size=40), hellos.map(codec.encode), requests.map(codec.encode))


def _fitting(kind: int, message: Message, header: Header) -> bytes:
    return codec.pack(Header(kind=kind, message_id=header.message_id, priority=header.priority), codec.encode(message))


frames = st.one_of(
    st.binary(max_size=60),
    st.builds(codec.pack, headers, bodies),
    st.builds(_fitting, st.just(Kind.HELLO), hellos, headers),
    st.builds(_fitting, st.just(Kind.CONTROL), requests, headers),
    st.builds(lambda rest: codec.pack(Header(kind=Kind.TELL))[:4] + rest, st.binary(max_size=40)),
)
items = st.lists(st.tuples(ROUTES, frames), max_size=30)


def new_core(settle_s: float = 0.0) -> Core:
    core = Core(epoch=EPOCH, broker=process(1), now=0.0, limits=Limits(settle_s=settle_s, idle_exit_s=5.0))
    for number, route in enumerate(ROUTE_OF):
        pid = 100 + number
        accepted = Accepted(route=route, is_same_user=True, pid=pid, process=process(pid), ancestors=(101,))
        core.handle(accepted, 0.0)
    for number, address in enumerate(["a", "b"]):  # two are in already, so that frames reach somebody
        hello = Hello(
            wire_versions=(1,),
            kind=PeerKind.CLIENT,
            address=address,
            incarnation=number,
            process=process(100 + number),
            roles=(HeldRole(role="host", generation=1),),
            subscriptions=(Subscription(topic="t"),),
        )
        core.handle_batch([(ROUTE_OF[number], codec.pack(Header(kind=Kind.HELLO), codec.encode(hello)))], 0.0)
    return core


@settings(deadline=None)
@given(items=items, settle_s=st.sampled_from([0.0, 1.0]))
def test_any_bytes_give_messages_or_refusals_and_never_an_exception(
    items: list[tuple[bytes, bytes]], settle_s: float
) -> None:
    core = new_core(settle_s)
    for item in items:
        outcome = core.handle_batch([item], 0.5)
        for _, stamp, frame in outcome.sends:
            told, (header, body) = codec.unpack_stamp(stamp), codec.unpack(frame)
            if header.kind == Kind.FAIL and not told.sender:
                assert codec.decode(body, Failure).code
    core.tick(10.0)


@settings(deadline=None)
@given(items=items, cuts=st.sets(st.integers(0, 30)), settle_s=st.sampled_from([0.0, 1.0]))
def test_any_split_into_batches_gives_the_same(
    items: list[tuple[bytes, bytes]], cuts: set[int], settle_s: float
) -> None:
    whole, parts = new_core(settle_s), new_core(settle_s)
    expected = whole.handle_batch(items, 0.5)
    sends: list[Any] = []
    effects: list[Any] = []
    edges = [0, *sorted(cut for cut in cuts if cut < len(items)), len(items)]
    for start, end in itertools.pairwise(edges):
        outcome = parts.handle_batch(items[start:end], 0.5)
        sends += outcome.sends
        effects += outcome.effects
    others, told = _apart(expected.sends)
    assert (others, effects) == (_apart(sends)[0], expected.effects)
    told_by_parts = _apart(sends)[1]
    assert told <= told_by_parts
    left = set(ROUTE_OF) - set(whole.state.by_route)
    assert {route for route, _, _ in told_by_parts - told} <= left, "only who left is not told where its calls are"


def _apart(sends: list[Any]) -> tuple[list[Any], set[tuple[bytes, int, str]]]:
    """Return all but ROUTED, in order, and of these who is told that which call is whose."""
    others: list[Any] = []
    told: set[tuple[bytes, int, str]] = set()
    for send in sends:
        header, body = codec.unpack(send[2])
        if header.kind != Kind.ROUTED or codec.unpack_stamp(send[1]).sender:
            others.append(send)
            continue
        more = codec.decode(body, Routed).message_ids if body else ()
        told |= {(send[0], number, header.to) for number in (header.correlation_id, *more)}
    return others, told


events = st.one_of(
    st.builds(ConnectionLost, ROUTES),
    st.integers(100, 103).map(lambda pid: ProcessDied(process(pid))),
    st.builds(
        Accepted,
        route=ROUTES,
        is_same_user=st.booleans(),
        pid=st.integers(0, 103),
        process=st.one_of(st.none(), st.integers(100, 103).map(process)),
        ancestors=st.lists(st.integers(100, 103), max_size=2).map(tuple),
        is_full=st.booleans(),
    ),
)


@settings(max_examples=200, deadline=None)
@given(
    script=st.lists(
        st.one_of(
            st.tuples(st.just("frame"), st.tuples(ROUTES, frames)),
            st.tuples(st.just("event"), events),
            st.tuples(st.just("fail sends"), st.booleans()),
            st.tuples(st.just("retry"), st.none()),
            st.tuples(st.just("time"), st.floats(0, 10)),
        ),
        max_size=40,
    )
)
def test_any_history_keeps_the_tables_consistent(script: list[tuple[str, Any]]) -> None:
    core, now, is_failing = new_core(1.0), 0.0, False
    for step, value in script:
        match step:
            case "frame":
                outcome = core.handle_batch([value], now)
            case "event":
                outcome = core.handle(value, now)
            case "fail sends":
                is_failing = value
                continue
            case "retry":
                for route in core.suspended_routes():
                    while queued := core.next_queued(route, 2):
                        core.handed_over(route, len(queued))
                continue
            case _:
                now += value
                outcome = core.tick(now)
        for number, send in enumerate(outcome.sends):
            if is_failing:
                core.handle(SendFailed(*send, is_gone=number % 3 == 2), now)
        check(core)


def check(core: Core) -> None:
    """What must hold between any two events."""
    state = core.state
    peers = set(state.peers.values())
    assert {peer.address for peer in peers} == set(state.peers)
    assert state.queued_bytes == sum(peer.mailbox.queued_bytes for peer in peers)
    for route, peer in state.by_route.items():
        assert (peer.route, peer in peers) == (route, True)
    for peer in peers:
        assert peer.route is None or state.by_route[peer.route] is peer
        assert peer.is_slow == (peer.route is None or peer.is_suspended or peer.mailbox.gap > 0)
        assert peer.is_suspended == (peer.route is not None and state.suspended.get(peer.route) is peer)
        assert peer.generations == set(peer.roles.values())
        assert peer.serving == sum(call[0] is peer for other in peers for call in other.calls.values())
        assert all(call[0] in peers for call in peer.calls.values())
        assert all(peer in state.watchers[address] for address in peer.watches)
        assert peer.process is None or peer in state.by_process[peer.process]
        for key in peer.roles:
            assert state.roles.holder(key) is peer
        for key in peer.waits_for:
            assert state.roles.position(peer, key) > 0
    for key, role in state.roles.items():
        assert role.holder is None or (role.holder in peers and key in role.holder.roles)
        assert {each for each, _ in role.waiting} <= peers
        assert role.holder is not None or not role.waiting or not state.is_settled


class BrokerMachine(RuleBasedStateMachine):
    """The settled core against a model of lists and dicts, written to be obviously right."""

    clients = Bundle("clients")

    @initialize()
    def begin(self) -> None:
        self.world = World()
        self.count = 0
        self.names: dict[str, Client] = {}
        self.queues: dict[str, list[str]] = {}  # role to its holder and those who wait, in order
        self.wants: dict[str, set[str]] = {}  # address to the topics that it subscribed
        self.watching: dict[str, set[str]] = {}  # watched to watchers
        self.calls: dict[tuple[str, int], str] = {}  # caller and id to callee
        self.expected: dict[str, list[tuple[object, ...]]] = {}

    @rule(target=clients)
    def join(self) -> object:
        self.count += 1
        name = f"p{self.count}"
        self.names[name] = self.world.join(name)
        self.expected[name] = []
        return name

    @rule(name=clients, role=st.sampled_from(["host", "rpc"]), wait=st.booleans())
    def claim(self, name: str, role: str, wait: bool) -> None:
        answer = self.names[name].control(Claim(role=role, wait=wait))
        queue = self.queues.setdefault(role, [])
        if not queue or queue[0] == name:
            self.queues[role] = queue or [name]
            assert isinstance(answer, Claimed)
            assert (answer.generation > 0, answer.holder) == (True, name)
        elif wait:
            if name not in queue:
                queue.append(name)
            assert isinstance(answer, Claimed)
            assert (answer.generation, answer.position, answer.holder) == (0, queue.index(name), queue[0])
        else:
            assert isinstance(answer, Failure)
            assert (answer.code, answer.holder) == ("role_taken", queue[0])

    @rule(name=clients, role=st.sampled_from(["host", "rpc"]))
    def release(self, name: str, role: str) -> None:
        self.names[name].control(Release(role=role))
        self._leave_queue(role, name)

    def _leave_queue(self, role: str, name: str) -> None:
        queue = self.queues.get(role, [])
        if name in queue:
            was_holder = queue[0] == name
            queue.remove(name)
            if was_holder and queue:
                self.expected[queue[0]].append(("granted", role))

    @rule(name=clients, role=st.sampled_from(["host", "rpc"]))
    def find(self, name: str, role: str) -> None:
        queue = self.queues.get(role, [])
        assert self.names[name].control(FindRole(role=role)).address == (queue[0] if queue else "")

    @rule(name=clients, topic=st.sampled_from(["t", "u"]), is_on=st.booleans())
    def subscribe(self, name: str, topic: str, is_on: bool) -> None:
        self.names[name].control(Subscribe(topic=topic) if is_on else Unsubscribe(topic=topic))
        wants = self.wants.setdefault(name, set())
        (wants.add if is_on else wants.discard)(topic)

    @rule(name=clients, topic=st.sampled_from(["t", "u"]))
    def publish(self, name: str, topic: str) -> None:
        self.names[name].publish(topic)
        for each, wants in self.wants.items():
            if topic in wants:
                self.expected[each].append((Kind.PUBLISH, name))

    @rule(watcher=clients, watched=st.integers(1, 8).map("p{}".format))
    def watch(self, watcher: str, watched: str) -> None:
        self.names[watcher].control(Watch(address=watched))
        if watched in self.names:
            self.watching.setdefault(watched, set()).add(watcher)
        else:
            self.expected[watcher].append(("terminated", watched))

    @rule(caller=clients, to=st.one_of(st.integers(1, 8).map("p{}".format), st.sampled_from(["role:host", "role:rpc"])))
    def call(self, caller: str, to: str) -> None:
        number = self.names[caller].call(to)
        is_role = to.startswith("role:")
        queue = self.queues.get(to[5:], []) if is_role else [to] * (to in self.names)
        if not queue:
            self.expected[caller].append(("failed", number, "not_delivered"))
            return
        if is_role:
            self.expected[caller].append((Kind.ROUTED, f"{queue[0]}@1"))
        self.expected[queue[0]].append((Kind.CALL, caller))
        self.calls[caller, number] = queue[0]

    @rule(data=st.data(), replier=clients)
    def reply(self, data: st.DataObject, replier: str) -> None:
        if not self.calls:
            return
        caller, number = data.draw(st.sampled_from(sorted(self.calls)))
        self.names[replier].reply(caller, number)
        if self.calls[caller, number] == replier:
            del self.calls[caller, number]
            self.expected[caller].append((Kind.REPLY, replier))

    @rule(name=consumes(clients), is_orderly=st.booleans())
    def go(self, name: str, is_orderly: bool) -> None:
        client = self.names.pop(name)
        if is_orderly:
            client.send(Kind.GOODBYE)
        else:
            client.die()
        self.wants.pop(name, None)
        for watchers in self.watching.values():
            watchers.discard(name)
        for key in [each for each in self.calls if each[0] == name]:
            del self.calls[key]
        for role in list(self.queues):
            self._leave_queue(role, name)
        for key in [each for each, callee in self.calls.items() if callee == name]:
            del self.calls[key]
            self.expected[key[0]].append(("failed", key[1], "outcome_unknown"))
        for watcher in self.watching.pop(name, set()):
            self.expected[watcher].append(("terminated", name))
        del self.expected[name]

    @rule(target=clients, name=consumes(clients))
    def resume(self, name: str) -> object:
        """A connection breaks and comes back in time, with everything stated again."""
        old = self.names[name]
        old.lose_connection()
        roles = tuple(
            HeldRole(role=role, generation=int(queue[0] == name))
            for role, queue in self.queues.items()
            if name in queue
        )
        topics = tuple(Subscription(topic=topic) for topic in self.wants.get(name, ()))
        watches = tuple(watched for watched, watchers in self.watching.items() if name in watchers)
        again = self.world.connect(pid=old.process.pid)
        again.inbox = old.inbox
        before = len(again.inbox)
        again.hello(name, roles=roles, subscriptions=topics, watches=watches)
        del again.inbox[before]  # the Welcome
        again._last_id = old._last_id + 1
        self.names[name] = again
        for (caller, _), callee in self.calls.items():
            if callee == name:  # it may be lost: whoever waits is told to send it again
                self.expected[caller].append((Kind.ROUTED, f"{name}@1"))
        return multiple(name)

    @invariant()
    def everybody_got_exactly_what_the_model_says(self) -> None:
        for name, client in getattr(self, "names", {}).items():
            seen = sorted((brief for each in client.take() for brief in _briefs(each)), key=repr)
            expected, self.expected[name] = sorted(self.expected[name], key=repr), []
            assert seen == expected

    @invariant()
    def the_tables_are_consistent(self) -> None:
        if hasattr(self, "world"):
            check(self.world.core)
            assert not any(isinstance(effect, Leave | Disconnect) for effect in self.world.effects)


def _briefs(seen: Any) -> list[tuple[object, ...]]:
    if seen.header.kind == Kind.ROUTED and not seen.stamp.sender:
        more = seen.message.message_ids if seen.body else ()
        return [(Kind.ROUTED, seen.header.to)] * (1 + len(more))
    return [_brief(seen)]


def _brief(seen: Any) -> tuple[object, ...]:
    if seen.stamp.sender:
        return seen.header.kind, seen.stamp.sender
    message = seen.message
    if isinstance(message, Failure):
        return "failed", seen.header.correlation_id, message.code
    if isinstance(message, Terminated):
        return "terminated", message.address
    return "granted", message.role


BrokerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_the_core_does_what_a_naive_model_says = BrokerMachine.TestCase
