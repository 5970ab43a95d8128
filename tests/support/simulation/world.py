"""One history: who is there, what may happen next, and the seeded choice of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TypeVar

from pisub.client.bus_core import Phase
from pisub.errors import BrokerUnavailableError
from pisub.process import ProcessIdentity
from pisub.protocol.limits import MAX_PEER_QUEUE_BYTES

from . import faults
from .broker import BrokerProcess
from .checks import BrokenPromiseError, Checks
from .links import ADDRESSES, Pipes
from .nodes import Node
from .wishes import act as wish

T = TypeVar("T")

_PAUSES_S = (0.0005, 0.02, 0.3, 0.3, 1.1, 1.1, 2.2, 7.0, 70.0)
#: The end of a history: the longest timeout of a call, the broker's settling and grace, and a little.
_SETTLING_PAUSES_S = (0.3, 1.1, 1.1, 2.2, 5.1, 0.3)
#: Histories that begin with a broker that has settled.
_SETTLED_SHARE = 0.7
_SHORT = (5, 25)
_LONG = (26, 80)
_SHORT_SHARE = 0.8
_MAX_ROUNDS = 2_000


class World:
    """Everything there is in one history.

    Args:
        seed: Decides all that happens.
        steps: How many things happen before the dust may settle; None takes 5 to 80.
        is_told: Whether to keep a transcript.
    """

    roles = ("host", "rpc")
    topics = ("t.one", "t.two")

    def __init__(self, seed: int, *, steps: int | None = None, is_told: bool = False) -> None:
        self.random = Random(seed)
        # Most of what goes wrong does so within a few steps; some needs many.
        chosen = self.random.randint(*(_SHORT if self.random.random() < _SHORT_SHARE else _LONG))
        self.steps = chosen if steps is None else steps
        self.transcript: list[str] | None = [] if is_told else None
        self.now = 1000.0
        self.checks = Checks(self)
        self.nodes: list[Node] = []
        self.dead: set[ProcessIdentity] = set()
        self.broker: BrokerProcess | None = None
        self.back_at = 0.0
        self.capacity = self.pick((2, 3, 8, 64))
        self.mailbox_bytes = self.pick((8_000, MAX_PEER_QUEUE_BYTES))
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
            (3 * self.is_rough, partial(faults.link_breaks, self)),
            (2 * self.is_rough, partial(faults.broker_dies, self)),
            (1 * self.is_rough, partial(faults.broker_is_told_to_leave, self)),
            (2 * self.is_rough, partial(faults.node_dies, self)),
            (2, partial(faults.node_leaves, self)),
            (3, partial(faults.node_comes, self)),
            (2 * self.is_rough, partial(faults.somebody_stops, self)),
            (4, partial(faults.somebody_goes_on, self)),
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
        self.start_broker()
        for address in ADDRESSES:
            self.start_node(address)
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
                self.kill(node)

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

    def start_broker(self) -> BrokerProcess:
        self._brokers += 1
        self.broker = BrokerProcess(self, self._brokers)
        self.note(f"{self.broker.epoch} starts")
        return self.broker

    def start_node(self, address: str) -> None:
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

    def kill(self, node: Node) -> None:
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

    def end_broker(self) -> None:
        broker = self.broker
        assert broker is not None
        self.broker = None
        for link in broker.links.values():
            self.break_link(link)

    # What may happen. Each returns whether it did. -----------------------------------------------------------

    def pick(self, items: Sequence[T]) -> T:
        return items[int(self.random.random() * len(items))]  # half the time of Random.choice

    def some(self, nodes: list[Node]) -> Node | None:
        return self.pick(nodes) if nodes else None

    def running(self) -> list[Node]:
        return [node for node in self.nodes if not node.is_stopped]

    def broker_acted(self, actor: str) -> None:
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
            self.end_broker()

    def _broker_reads(self) -> bool:
        broker = self.broker
        if broker is None or broker.is_stopped:
            return False
        full = [link for link in broker.links.values() if link.up]
        if not full:
            return False
        link = self.pick(full)
        count = self.pick((1, 1, 2, 64))
        self.note(f"{broker.epoch} reads {min(count, len(link.up))} of {link.owner.name}")
        broker.read(link, count)
        self.broker_acted(link.owner.name)
        return True

    def _node_reads(self) -> bool:
        full = [node for node in self.running() if node.residue or (node.link is not None and node.link.down)]
        node = self.some(full)
        if node is None:
            return False
        pipes = [*node.residue, *([node.link.down] if node.link is not None and node.link.down else [])]
        node.read(self.pick(pipes), self.pick((1, 1, 2, 64)))
        return True

    def _node_turns(self) -> bool:
        node = self.some(self.running())
        if node is None:
            return False
        node.turn()
        return True

    def _node_notices(self) -> bool:
        node = self.some([node for node in self.running() if node.notices])
        if node is None:
            return False
        self.note(f"{node.name} hears that its connection is {'up' if node.notices[0] else 'gone'}")
        node.notice()
        return True

    def _node_connects(self) -> bool:
        broker = self.broker
        if broker is None or broker.is_stopped or broker.has_left:
            return False
        node = self.some([node for node in self.running() if node.is_dialled and node.link is None])
        if node is None:
            return False
        self._links += 1
        node.link = Pipes(node, self._links, self.capacity)
        node.notices.append(True)
        broker.connect(node.link)
        self.note(f"{node.name} connects to {broker.epoch}")
        return True

    def _search_ends(self) -> bool:
        node = self.some([node for node in self.running() if node.is_searching])
        if node is None:
            return False
        node.is_searching = False
        if self.broker is None and self.now < self.back_at:
            self.note(f"{node.name} finds no broker")
            node.run(node.core.not_found(BrokerUnavailableError("none"), self.now))
            return True
        if self.broker is None:
            self.start_broker()
        self.note(f"{node.name} finds the broker")
        node.run(node.core.found("ipc://broker", self.now))
        return True

    def _handler_ends(self) -> bool:
        node = self.some([node for node in self.running() if node.tasks])
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
            self.broker_acted("")
            return True
        gone = broker.dead()
        if gone:
            self.note(f"{broker.epoch} hears of the death of {gone[0].pid}")
            broker.note_death(gone[0])
            self.broker_acted("")
        return bool(gone)

    def _broker_retries(self) -> bool:
        if self.broker is not None and not self.broker.is_stopped:
            self.broker.retry()
        return True

    def _time_passes(self) -> bool:
        self._pass(self.pick(_PAUSES_S))
        return True

    def _pass(self, seconds: float) -> None:
        self.note(f"{seconds:g} s pass")
        self.now += seconds
        if self.broker is not None and not self.broker.is_stopped:
            self.broker.tick()
            self.broker_acted("")
        for node in self.running():
            node.tick()

    def _node_acts(self) -> bool:
        node = self.some(self.running())
        if node is None:
            return False
        wish(self, node)
        return True
