"""What clients of a simulation want: calls, messages, roles, subscriptions, watches; chosen by the world's schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pisub.client.bus_core import Phase
from pisub.protocol.delivery import Kind, Priority

from .links import ADDRESSES
from .messages import Note, Word
from .nodes import Node

if TYPE_CHECKING:
    from .world import World

_TIMEOUTS_S = (None, None, 0.5, 5.0)


def act(world: World, node: Node) -> None:
    """Let one client want one to three things."""
    for want in world.random.choices(_ACTIONS, cum_weights=_ACTION_TOTALS, k=world.pick((1, 1, 2, 3))):
        want(world, node)


def _call(world: World, node: Node) -> None:
    to = _target(world)
    fences = list(node.fences().items())
    node.call(
        to,
        timeout_s=world.pick(_TIMEOUTS_S),
        is_idempotent=world.random.random() < 0.4,
        mode=world.pick(("now", "now", "now", "later", "later", "fail", "relay")),
        name=world.pick(fences) if fences and world.random.random() < 0.3 else ("", None),
    )


def _target(world: World) -> str:
    if world.random.random() < 0.4:
        return f"role:{world.pick(world.roles)}"
    return world.pick((*ADDRESSES, "nobody") if world.random.random() < 0.1 else ADDRESSES)


def _tell(world: World, node: Node) -> None:
    to = _target(world)
    priority = world.pick((Priority.CONTROL, Priority.TERMINAL, Priority.NORMAL, Priority.DROPPABLE))
    due = [each for each in world.nodes if each.address == to and _is_known(each, priority)]
    number = world.checks.note_begins(node, due)
    if not node.say(Note(number=number), kind=Kind.TELL, to=to, priority=priority):
        world.checks.notes[number].due.clear()


def _publish(world: World, node: Node) -> None:
    topic = world.pick(world.topics)
    priority = world.pick((Priority.TERMINAL, Priority.NORMAL, Priority.DROPPABLE))
    for _ in range(world.pick((1, 1, 4, 12))):
        due = [each for each in world.nodes if each.is_told_of(topic) and _is_known(each, priority)]
        number = world.checks.note_begins(node, due)
        node.say(Note(number=number), kind=Kind.PUBLISH, topic=topic, priority=priority)


def _is_known(node: Node, priority: int) -> bool:
    return priority < Priority.DROPPABLE and node.core.phase is Phase.ONLINE and not node.notices


def _speak(world: World, node: Node) -> None:
    """Say something in the name of a role, also of one that may be lost by now."""
    for role, fence in node.fences().items():
        number = world.checks.note_begins(node, [])
        word = Word(number=number, role=role)
        to = _target(world)
        node.say(word, kind=Kind.TELL, to=to, priority=Priority.NORMAL, fence=fence, trace=role)


def _claim(world: World, node: Node) -> None:
    role = world.pick(world.roles)
    wait = world.random.random() < 0.7
    world.note(f"{node.name} claims {role}{' and waits' if wait else ''}")
    node.claim(role, wait=wait)


def _release(world: World, node: Node) -> None:
    role = world.pick(world.roles)
    world.note(f"{node.name} releases {role}")
    node.release(role)


def _subscribe(world: World, node: Node) -> None:
    if world.random.random() < 0.3:
        node.subscribe("t.", is_prefix=True)
    else:
        node.subscribe(world.pick(world.topics), is_prefix=False)


def _unsubscribe(world: World, node: Node) -> None:
    if node.core.subscriptions:
        node.unsubscribe(world.pick(list(node.core.subscriptions)))


def _watch(world: World, node: Node) -> None:
    node.watch(world.pick(ADDRESSES))


_WEIGHTED: tuple[tuple[int, Callable[[World, Node], None]], ...] = (
    (10, _call),
    (5, _tell),
    (4, _publish),
    (3, _speak),
    (5, _claim),
    (2, _release),
    (3, _subscribe),
    (1, _unsubscribe),
    (2, _watch),
)
_ACTIONS = [act for _, act in _WEIGHTED]
_ACTION_TOTALS = [sum(weight for weight, _ in _WEIGHTED[: place + 1]) for place in range(len(_WEIGHTED))]
