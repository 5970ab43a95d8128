"""One history: who is there, what may happen next, and the seeded choice of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from pisub.client.bus_core import Phase
from pisub.errors import BrokerUnavailableError
from pisub.process import ProcessIdentity
from pisub.protocol.delivery import Kind, Priority
from pisub.protocol.limits import MAX_PEER_QUEUE_BYTES

from .broker import BrokerProcess
from .checks import BrokenPromiseError, Checks
from .links import Pipes
from .messages import Note, Word
from .nodes import Node

T = TypeVar("T")

ADDRESSES = ("a", "b", "c")
_PAUSES_S = (0.0005, 0.02, 0.3, 0.3, 1.1, 1.1, 2.2, 7.0, 70.0)
_AWAY_S = (0.0, 0.0, 1.0, 60.0)
_TIMEOUTS_S = (None, None, 0.5, 5.0)
#: The end of a history: the longest timeout of a call, the broker's settling and grace, and a little.
_SETTLING_PAUSES_S = (0.3, 1.1, 1.1, 2.2, 5.1, 0.3)
#: Histories that begin with a broker that has settled.
_SETTLED_SHARE = 0.7
_MAX_ROUNDS = 2_000


class World:
    """Everything there is in one history.

    Args:
        seed: Decides all that happens.
        steps: How many things happen before the dust may settle; None takes 20 to 80.
        is_told: Whether to keep a transcript.
    """

    roles = ("host", "rpc")
    topics = ("t.one", "t.two")

    def __init__(self, seed: int, *, steps: int | None = None, is_told: bool = False) -> None:
        self.random = Random(seed)
        chosen = self.random.randint(20, 80)
        self.steps = chosen if steps is None else steps
        self.transcript: list[str] | None = [] if is_told else None
        self.now = 1000.0
        self.checks = Checks(self)
        self.nodes: list[Node] = []
        self.dead: set[ProcessIdentity] = set()
        self.broker: BrokerProcess | None = None
        self.back_at = 0.0
        self.capacity = self._pick((2, 3, 8, 64))
        self.mailbox_bytes = self._pick((5_000, MAX_PEER_QUEUE_BYTES))
        self.is_rough = self.random.random() < 0.8
        self._brokers = self._links = self._lives = 0
        self._choices: list[Callable[[], bool]] = []
        self._weights: list[int] = []
        for weight, act in (
            (34, self._broker_reads),
            (34, self._node_reads),
            (26, self._node_acts),
            (10, self._node_turns),
            (8, self._node_notices),
            (8, self._node_connects),
            (8, self._search_ends),
            (6, self._handler_ends),
            (6, self._broker_notices),
            (5, self._broker_retries),
            (6, self._time_passes),
            (3 * self.is_rough, self._link_breaks),
            (2 * self.is_rough, self._broker_dies),
            (1 * self.is_rough, self._broker_is_told_to_leave),
            (2 * self.is_rough, self._node_dies),
            (2, self._node_leaves),
            (3, self._node_comes),
            (2 * self.is_rough, self._somebody_stops),
            (4, self._somebody_goes_on),
        ):
            if weight:
                self._choices.append(act)
                self._weights.append(weight)
        self._totals = [sum(self._weights[: place + 1]) for place in range(len(self._weights))]

    def note(self, line: str) -> None:
        if self.transcript is not None:
            self.transcript.append(line)

    # The history. --------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Play it.

        Raises:
            BrokenPromiseError: A check failed.
        """
        self._start_broker()
        for address in ADDRESSES:
            self._start_node(address)
        self._let_things_happen()
        if self.random.random() < _SETTLED_SHARE:
            self._pass(1.1)
        for _ in range(self.steps):
            (act,) = self.random.choices(self._choices, cum_weights=self._totals)
            act()
            self.checks.beliefs()
        self.settle()
        self.checks.settled()
        self.close()
        self.checks.closed()

    def settle(self) -> None:
        """No more faults, and time enough."""
        self.note("the dust settles")
        self.back_at = self.now
        for node in self.nodes:
            node.is_stopped = False
        if self.broker is not None:
            self.broker.is_stopped = False
        for pause in _SETTLING_PAUSES_S:
            self._let_things_happen()
            self._pass(pause)
            self._send_twins_away()
        self._let_things_happen()

    def _send_twins_away(self) -> None:
        """A second process with an address that the first has is never let in, and would try for ever."""
        for node in [each for each in self.nodes if each.core.phase is not Phase.ONLINE]:
            if any(each is not node and each.address == node.address for each in self.nodes):
                self._kill(node)

    def close(self) -> None:
        """Everybody says goodbye; the broker hears of it."""
        for node in list(self.nodes):
            node.goodbye()
        self._let_things_happen()
        self._pass(0.3)
        self._let_things_happen()

    def _let_things_happen(self) -> None:
        """Do whatever can be done without time passing, until nothing can."""
        for _ in range(_MAX_ROUNDS):
            done = False
            for act in (
                self._node_notices,
                self._search_ends,
                self._node_connects,
                self._broker_reads,
                self._node_reads,
                self._broker_notices,
                self._handler_ends,
            ):
                while act():
                    done = True
            for node in self.nodes:
                node.turn()
                done = done or bool(node.link is not None and node.link.up)
            if self.broker is not None:
                done = done or self.broker.core.has_suspended
                self.broker.retry()
            if not done:
                return
        raise BrokenPromiseError("things never come to rest")

    # Who is there. -------------------------------------------------------------------------------------------

    def _start_broker(self) -> BrokerProcess:
        self._brokers += 1
        self.broker = BrokerProcess(self, self._brokers)
        self.note(f"{self.broker.epoch} starts")
        return self.broker

    def _start_node(self, address: str) -> None:
        self._lives += 1
        node = Node(self, address, 100 + self._lives, self._lives)
        self.nodes.append(node)
        self.note(f"{node.name} starts")

    def end_node(self, node: Node, *, keeps_up: bool) -> None:
        """Its process is over; ``keeps_up``: after what it sent was written."""
        node.is_alive = False
        self.nodes.remove(node)
        self.dead.add(node.process)
        link = node.link
        node.link = None
        if link is not None:
            up = list(link.up)
            link.break_(self.random, keeps_down=False)
            if keeps_up:
                link.up = deque(up)
            if self.broker is not None and link.route in self.broker.links:
                self.broker.lost.append(link)
        for task in node.tasks:
            task.close()

    def _kill(self, node: Node) -> None:
        self.note(f"{node.name} is killed")
        self.end_node(node, keeps_up=False)

    # Connections. --------------------------------------------------------------------------------------------

    def break_link(self, link: Pipes) -> None:
        """The connection is gone for both ends, each of which hears of it in its own time."""
        if not link.is_open:
            return
        link.break_(self.random, keeps_down=True)
        node: Node = link.owner
        if node.link is link:
            node.link = None
            node.notices.append(False)
            if link.down:
                node.residue.append(link.down)
        if self.broker is not None and link.route in self.broker.links:
            self.broker.lost.append(link)

    def leave_link(self, node: Node) -> None:
        """The client hangs up: what it had not read is gone."""
        link = node.link
        assert link is not None
        node.link = None
        link.break_(self.random, keeps_down=False)
        if self.broker is not None and link.route in self.broker.links:
            self.broker.lost.append(link)

    def _end_broker(self) -> None:
        broker = self.broker
        assert broker is not None
        self.broker = None
        for link in broker.links.values():
            self.break_link(link)

    # What may happen. Each returns whether it did. -----------------------------------------------------------

    def _pick(self, items: Sequence[T]) -> T:
        return items[int(self.random.random() * len(items))]  # half the time of Random.choice

    def _some(self, nodes: list[Node]) -> Node | None:
        return self._pick(nodes) if nodes else None

    def _running(self) -> list[Node]:
        return [node for node in self.nodes if not node.is_stopped]

    def _broker_acted(self, actor: str) -> None:
        broker = self.broker
        if broker is None:
            return
        self.checks.roles(actor)
        self.checks.bounds()
        if broker.has_left:
            self.note(f"{broker.epoch} leaves")
            for link in list(broker.links.values()):
                while link.up and link.route in broker.links:
                    broker.read(link, len(link.up))
            self._end_broker()

    def _broker_reads(self) -> bool:
        broker = self.broker
        if broker is None or broker.is_stopped:
            return False
        full = [link for link in broker.links.values() if link.up]
        if not full:
            return False
        link = self._pick(full)
        count = self._pick((1, 1, 2, 64))
        self.note(f"{broker.epoch} reads {min(count, len(link.up))} of {link.owner.name}")
        broker.read(link, count)
        self._broker_acted(link.owner.name)
        return True

    def _node_reads(self) -> bool:
        full = [node for node in self._running() if node.residue or (node.link is not None and node.link.down)]
        node = self._some(full)
        if node is None:
            return False
        pipes = [*node.residue, *([node.link.down] if node.link is not None and node.link.down else [])]
        node.read(self._pick(pipes), self._pick((1, 1, 2, 64)))
        return True

    def _node_turns(self) -> bool:
        node = self._some(self._running())
        if node is None:
            return False
        node.turn()
        return True

    def _node_notices(self) -> bool:
        node = self._some([node for node in self._running() if node.notices])
        if node is None:
            return False
        self.note(f"{node.name} hears that its connection is {'up' if node.notices[0] else 'gone'}")
        node.notice()
        return True

    def _node_connects(self) -> bool:
        broker = self.broker
        if broker is None or broker.is_stopped or broker.has_left:
            return False
        node = self._some([node for node in self._running() if node.is_dialled and node.link is None])
        if node is None:
            return False
        self._links += 1
        node.link = Pipes(node, self._links, self.capacity)
        node.notices.append(True)
        broker.connect(node.link)
        self.note(f"{node.name} connects to {broker.epoch}")
        return True

    def _search_ends(self) -> bool:
        node = self._some([node for node in self._running() if node.is_searching])
        if node is None:
            return False
        node.is_searching = False
        if self.broker is None and self.now < self.back_at:
            self.note(f"{node.name} finds no broker")
            node.run(node.core.not_found(BrokerUnavailableError("none"), self.now))
            return True
        if self.broker is None:
            self._start_broker()
        self.note(f"{node.name} finds the broker")
        node.run(node.core.found("ipc://broker", self.now))
        return True

    def _handler_ends(self) -> bool:
        node = self._some([node for node in self._running() if node.tasks])
        if node is None:
            return False
        node.finish_one()
        node.turn()
        return True

    def _broker_notices(self) -> bool:
        broker = self.broker
        if broker is None or broker.is_stopped:
            return False
        if any(not link.up for link in broker.lost):
            broker.note_lost()
            self._broker_acted("")
            return True
        gone = broker.dead()
        if gone:
            self.note(f"{broker.epoch} hears of the death of {gone[0].pid}")
            broker.note_death(gone[0])
            self._broker_acted("")
        return bool(gone)

    def _broker_retries(self) -> bool:
        if self.broker is not None and not self.broker.is_stopped:
            self.broker.retry()
        return True

    def _time_passes(self) -> bool:
        self._pass(self._pick(_PAUSES_S))
        return True

    def _pass(self, seconds: float) -> None:
        self.note(f"{seconds:g} s pass")
        self.now += seconds
        if self.broker is not None and not self.broker.is_stopped:
            self.broker.tick()
            self._broker_acted("")
        for node in self._running():
            node.tick()

    # Faults. -------------------------------------------------------------------------------------------------

    def _link_breaks(self) -> bool:
        node = self._some([node for node in self.nodes if node.link is not None])
        if node is None or node.link is None:
            return False
        self.note(f"the connection of {node.name} breaks")
        self.break_link(node.link)
        return True

    def _broker_dies(self) -> bool:
        if self.broker is None:
            return False
        away = self._pick(_AWAY_S)
        self.note(f"{self.broker.epoch} is killed, and the next may start in {away:g} s")
        self._end_broker()
        self.back_at = self.now + away
        if not away:
            self._start_broker()
        return True

    def _broker_is_told_to_leave(self) -> bool:
        broker = self.broker
        if broker is None or broker.is_stopped:
            return False
        broker.core._leave("told to")
        broker.apply(broker.core.state.take())
        self._broker_acted("")
        return True

    def _node_dies(self) -> bool:
        node = self._some(self.nodes)
        if node is None:
            return False
        self._kill(node)
        return True

    def _node_leaves(self) -> bool:
        node = self._some(self._running())
        if node is None:
            return False
        self.note(f"{node.name} says goodbye")
        node.goodbye()
        return True

    def _node_comes(self) -> bool:
        """A new process, mostly for an address that nobody has."""
        taken = {node.address for node in self.nodes}
        free = [address for address in ADDRESSES if address not in taken]
        if not free and self.random.random() < 0.8:
            return False
        if len(self.nodes) > len(ADDRESSES):
            return False
        self._start_node(self._pick(free or ADDRESSES))
        return True

    def _somebody_stops(self) -> bool:
        if self.broker is not None and self.random.random() < 0.2:
            self.note(f"{self.broker.epoch} stops")
            self.broker.is_stopped = True
            return True
        node = self._some(self._running())
        if node is None:
            return False
        self.note(f"{node.name} stops")
        node.is_stopped = True
        return True

    def _somebody_goes_on(self) -> bool:
        for node in self.nodes:
            if node.is_stopped:
                self.note(f"{node.name} goes on")
                node.is_stopped = False
                return True
        if self.broker is not None and self.broker.is_stopped:
            self.note(f"{self.broker.epoch} goes on")
            self.broker.is_stopped = False
            return True
        return False

    # What clients want. --------------------------------------------------------------------------------------

    def _node_acts(self) -> bool:
        node = self._some(self._running())
        if node is None:
            return False
        for what in self.random.choices(_ACTIONS, cum_weights=_ACTION_TOTALS, k=self._pick((1, 1, 2, 3))):
            what(self, node)
        return True

    def _call(self, node: Node) -> None:
        to = self._target()
        fences = list(node.fences().items())
        node.call(
            to,
            timeout_s=self._pick(_TIMEOUTS_S),
            is_idempotent=self.random.random() < 0.4,
            mode=self._pick(("now", "now", "now", "later", "later", "fail", "relay")),
            name=self._pick(fences) if fences and self.random.random() < 0.3 else ("", None),
        )

    def _target(self) -> str:
        if self.random.random() < 0.4:
            return f"role:{self._pick(self.roles)}"
        return self._pick((*ADDRESSES, "nobody") if self.random.random() < 0.1 else ADDRESSES)

    def _tell(self, node: Node) -> None:
        to = self._target()
        priority = self._pick((Priority.CONTROL, Priority.TERMINAL, Priority.NORMAL, Priority.DROPPABLE))
        due = [each for each in self.nodes if each.address == to and self._is_known(each, priority)]
        number = self.checks.note_begins(node, due)
        if not node.say(Note(number=number), kind=Kind.TELL, to=to, priority=priority):
            self.checks.notes[number].due.clear()

    def _publish(self, node: Node) -> None:
        topic = self._pick(self.topics)
        priority = self._pick((Priority.TERMINAL, Priority.NORMAL, Priority.DROPPABLE))
        for _ in range(self._pick((1, 1, 4, 12))):
            due = [each for each in self.nodes if each.is_told_of(topic) and self._is_known(each, priority)]
            number = self.checks.note_begins(node, due)
            node.say(Note(number=number), kind=Kind.PUBLISH, topic=topic, priority=priority)

    def _is_known(self, node: Node, priority: int) -> bool:
        return priority < Priority.DROPPABLE and node.core.phase is Phase.ONLINE and not node.notices

    def _speak(self, node: Node) -> None:
        """Say something in the name of a role, also of one that may be lost by now."""
        for role, fence in node.fences().items():
            number = self.checks.note_begins(node, [])
            word = Word(number=number, role=role)
            to = self._target()
            node.say(word, kind=Kind.TELL, to=to, priority=Priority.NORMAL, fence=fence, trace=role)

    def _claim(self, node: Node) -> None:
        role = self._pick(self.roles)
        wait = self.random.random() < 0.7
        self.note(f"{node.name} claims {role}{' and waits' if wait else ''}")
        node.claim(role, wait=wait)

    def _release(self, node: Node) -> None:
        role = self._pick(self.roles)
        self.note(f"{node.name} releases {role}")
        node.release(role)

    def _subscribe(self, node: Node) -> None:
        if self.random.random() < 0.3:
            node.subscribe("t.", is_prefix=True)
        else:
            node.subscribe(self._pick(self.topics), is_prefix=False)

    def _unsubscribe(self, node: Node) -> None:
        if node.core.subscriptions:
            node.unsubscribe(self._pick(list(node.core.subscriptions)))

    def _watch(self, node: Node) -> None:
        node.watch(self._pick(ADDRESSES))


_WEIGHTED: tuple[tuple[int, Callable[[World, Node], None]], ...] = (
    (10, World._call),
    (5, World._tell),
    (4, World._publish),
    (3, World._speak),
    (5, World._claim),
    (2, World._release),
    (3, World._subscribe),
    (1, World._unsubscribe),
    (2, World._watch),
)
_ACTIONS = [act for _, act in _WEIGHTED]
_ACTION_TOTALS = [sum(weight for weight, _ in _WEIGHTED[: place + 1]) for place in range(len(_WEIGHTED))]
