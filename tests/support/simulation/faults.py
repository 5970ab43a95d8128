"""What goes wrong in a simulation, and who comes and goes. Each returns whether it happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .links import ADDRESSES

if TYPE_CHECKING:
    from .world import World

#: How long the next broker cannot be started.
_AWAY_S = (0.0, 0.0, 1.0, 60.0)


def link_breaks(world: World) -> bool:
    node = world.some([node for node in world.nodes if node.link is not None])
    if node is None or node.link is None:
        return False
    world.note(f"the connection of {node.name} breaks")
    world.break_link(node.link)
    return True


def broker_dies(world: World) -> bool:
    if world.broker is None:
        return False
    away = world.pick(_AWAY_S)
    world.note(f"{world.broker.epoch} is killed, and the next may start in {away:g} s")
    world.end_broker()
    world.back_at = world.now + away
    if not away:
        world.start_broker()
    return True


def broker_is_told_to_leave(world: World) -> bool:
    broker = world.broker
    if broker is None or broker.is_stopped:
        return False
    broker.core._leave("told to")
    broker.apply(broker.core.state.take())
    world.broker_acted("")
    return True


def node_dies(world: World) -> bool:
    node = world.some(world.nodes)
    if node is None:
        return False
    world.kill(node)
    return True


def node_leaves(world: World) -> bool:
    node = world.some(world.running())
    if node is None:
        return False
    world.note(f"{node.name} says goodbye")
    node.goodbye()
    return True


def node_comes(world: World) -> bool:
    """A new process, mostly for an address that nobody has."""
    taken = {node.address for node in world.nodes}
    free = [address for address in ADDRESSES if address not in taken]
    if not free and world.random.random() < 0.8:
        return False
    if len(world.nodes) > len(ADDRESSES):
        return False
    world.start_node(world.pick(free or ADDRESSES))
    return True


def somebody_stops(world: World) -> bool:
    if world.broker is not None and world.random.random() < 0.2:
        world.note(f"{world.broker.epoch} stops")
        world.broker.is_stopped = True
        return True
    node = world.some(world.running())
    if node is None:
        return False
    world.note(f"{node.name} stops")
    node.is_stopped = True
    return True


def somebody_goes_on(world: World) -> bool:
    for node in world.nodes:
        if node.is_stopped:
            world.note(f"{node.name} goes on")
            node.is_stopped = False
            return True
    if world.broker is not None and world.broker.is_stopped:
        world.note(f"{world.broker.epoch} goes on")
        world.broker.is_stopped = False
        return True
    return False
