"""``pisub broker trace``: what passes through the broker, line by line, until Ctrl-C. Envelopes, never bodies."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import msgspec

from pisub.cli.console import Console, safe_line
from pisub.cli.exits import Exit
from pisub.cli.interrupts import Interrupts
from pisub.client.bus import Bus, BusState, Incoming
from pisub.clock import SystemClock
from pisub.config import Settings
from pisub.errors import ProtocolError
from pisub.protocol.delivery import Kind, Priority
from pisub.protocol.session import TRACE_TOPIC, Envelope, PeerKind, Traced

_KINDS: Final = {value: name for name, value in vars(Kind).items() if isinstance(value, int)}
_PRIORITIES: Final = {value: name.lower() for name, value in vars(Priority).items() if isinstance(value, int)}


def trace(settings: Settings, console: Console) -> Exit:
    """Show it.

    Raises:
        BrokerUnavailableError: None runs.
        RefusedError: This process may not see it.
    """
    return asyncio.run(_trace(settings, console))


async def _trace(settings: Settings, console: Console) -> Exit:
    over = asyncio.Event()
    failed: list[BaseException] = []

    def show(incoming: Incoming) -> None:
        if incoming.sender.address:
            return
        try:
            _print(console, incoming)
        except ProtocolError:
            return
        except OSError as error:  # whoever reads it went away
            failed.append(error)
            over.set()

    def say_state(state: BusState) -> None:
        if state in (BusState.CONNECTED, BusState.DISCONNECTED):
            console.say(f"broker {state.value}")

    async with await Bus.connect(settings, kind=PeerKind.OBSERVER, start_broker=False) as bus:
        bus.on_state(say_state)
        await bus.subscribe(TRACE_TOPIC, show)
        console.say("tracing; Ctrl-C ends it")
        with Interrupts(over.set):
            await over.wait()
    if failed:
        raise failed[0]
    return Exit.OK


def _print(console: Console, incoming: Incoming) -> None:
    now_ms = SystemClock().wall_ms()
    if incoming.dropped:
        if console.is_json:
            console.json("trace-gap", {"at": now_ms, "dropped": incoming.dropped})
        else:
            console.result(f"{clock_text(now_ms)} … {incoming.dropped} messages of the trace were dropped")
    for each in incoming.decode(Traced).envelopes:
        if console.is_json:
            document: dict[str, Any] = msgspec.to_builtins(each)
            document.pop("kind", None)
            console.json("trace", {"at": now_ms, "name": kind_name(each.kind), **document})
        else:
            console.result(f"{clock_text(now_ms)} {describe(each)}")


def kind_name(kind: int) -> str:
    """Return a kind's name, also of one that there is not."""
    return _KINDS.get(kind, f"KIND-{kind}") if kind else "UNREADABLE"


def clock_text(now_ms: int) -> str:
    """Return a moment as people of this machine read it, to the millisecond."""
    return f"{time.strftime('%H:%M:%S', time.localtime(now_ms / 1000))}.{now_ms % 1000:03}"


def describe(envelope: Envelope) -> str:
    """Return one envelope as a line."""
    target = envelope.to or envelope.topic or "broker"
    parts = [f"{kind_name(envelope.kind):8} {envelope.sender or 'broker'} → {target}"]
    if envelope.to and envelope.topic:
        parts.append(f"topic={envelope.topic}")
    parts += [
        f"{name}={value}"
        for name, value in (
            ("scope", envelope.scope),
            ("id", envelope.message_id),
            ("re", envelope.correlation_id),
            ("generation", envelope.generation),
            ("ttl-ms", envelope.ttl_ms),
            ("flags", envelope.flags),
            ("trace", envelope.trace),
        )
        if value
    ]
    if envelope.priority != Priority.NORMAL:
        parts.append(_PRIORITIES.get(envelope.priority, str(envelope.priority)))
    return safe_line(" ".join([*parts, f"{envelope.body_bytes} B"]))
