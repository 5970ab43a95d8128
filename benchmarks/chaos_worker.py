"""The processes of ``benchmarks.chaos``: one that does what it is asked and writes each deed down, one that listens.

``python -m benchmarks.chaos_worker doer FILE`` appends the key of everything that it does to FILE, a line each:
whatever it answers and whoever hears it, the file has what was done. Both leave when their standard input ends.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import Counter
from typing import Final

from pisub.client.bus import Bus, Incoming, Sender
from pisub.config import load_settings
from pisub.protocol.base import Message
from pisub.protocol.session import PeerKind

DOER: Final = "chaos-doer"
LISTENER: Final = "chaos-listener"
ROLE: Final = "chaos"
TOPIC: Final = "chaos:news"
#: How long a deed takes, at most: so that calls are open when the broker dies.
_SLOWEST_S: Final = 0.05


class Do(Message, frozen=True, kw_only=True, tag="chaos:do"):
    """Do something once."""

    key: str


class Did(Message, frozen=True, kw_only=True, tag="chaos:did"):
    """It is done."""

    key: str


class News(Message, frozen=True, kw_only=True, tag="chaos:news"):
    """Published; with a number where it must arrive, without one where it may be dropped."""

    number: int = 0
    payload: str = ""


class WhatCame(Message, frozen=True, kw_only=True, tag="chaos:what-came"):
    """Asks the listener."""


class Came(Message, frozen=True, kw_only=True, tag="chaos:came"):
    """Numbers of the news that must arrive, as they came, how many others, and how many it was told were dropped."""

    numbers: tuple[int, ...] = ()
    others: int = 0
    dropped: int = 0


async def do(path: str) -> None:
    """Serve ``Do``."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    dice = random.Random(path)

    async def handle(message: Do, _sender: Sender) -> Did:
        os.write(descriptor, message.key.encode() + b"\n")
        await asyncio.sleep(dice.random() * _SLOWEST_S)
        return Did(key=message.key)

    async with await Bus.connect(load_settings(), kind=PeerKind.CLIENT, address=DOER) as bus:
        bus.serve(Do, handle)
        await bus.claim(ROLE)
        await _serve()


async def listen() -> None:
    """Subscribe and tell what came."""
    numbers: list[int] = []
    seen: Counter[str] = Counter()

    def note(incoming: Incoming) -> None:
        seen["dropped"] += incoming.dropped
        number = incoming.decode(News).number
        if number:
            numbers.append(number)
        else:
            seen["others"] += 1

    def tell(_message: WhatCame, _sender: Sender) -> Came:
        return Came(numbers=tuple(numbers), others=seen["others"], dropped=seen["dropped"])

    async with await Bus.connect(load_settings(), kind=PeerKind.CLIENT, address=LISTENER) as bus:
        bus.serve(WhatCame, tell)
        await bus.subscribe(TOPIC, note)
        await _serve()


async def _serve() -> None:
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(do(sys.argv[2]) if sys.argv[1] == "doer" else listen())
