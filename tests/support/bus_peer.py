"""A process with a bus of its own: ``python -m tests.support.bus_peer ADDRESS``.

It prints ``ready`` when it serves, holds the role ``echo``, and leaves when its standard input ends.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from pisub.client.bus import Bus, BusState, Sender
from pisub.config import load_settings
from pisub.protocol.base import Message
from pisub.protocol.session import PeerKind


class Say(Message, frozen=True, kw_only=True, tag="test:say"):
    """Echoed as ``Said``. With ``is_held`` only after the next ``LetGo``, or after a reconnect."""

    text: str
    is_held: bool = False


class Said(Message, frozen=True, kw_only=True, tag="test:said"):
    text: str
    #: How often the handler was called with this text.
    times: int


class HowMany(Message, frozen=True, kw_only=True, tag="test:how-many"):
    """Asks what the handler was called with."""


class Handled(Message, frozen=True, kw_only=True, tag="test:handled"):
    times: dict[str, int]
    waiting: int


class LetGo(Message, frozen=True, kw_only=True, tag="test:let-go"):
    """Answer what is held."""


class Echo:
    """Serves ``Say``, and counts."""

    def __init__(self, bus: Bus) -> None:
        self.times: Counter[str] = Counter()
        self.waiting = 0
        self._go = asyncio.Event()
        bus.serve(Say, self._say)
        bus.serve(HowMany, lambda _message, _sender: Handled(times=dict(self.times), waiting=self.waiting))
        bus.on_tell(LetGo, lambda _message, _sender: self._go.set())
        bus.on_state(lambda state: self._go.set() if state is BusState.RESYNC else None)

    async def _say(self, message: Say, _sender: Sender) -> Said:
        self.times[message.text] += 1
        if message.is_held:
            self.waiting += 1
            await self._go.wait()
            self.waiting -= 1
        return Said(text=message.text, times=self.times[message.text])


async def until_held(bus: Bus, address: str, count: int) -> None:
    """Wait until a peer holds so many calls; each look is a round trip, so nothing spins."""
    async with asyncio.timeout(30):
        while True:
            if (await bus.call(address, HowMany(), Handled, timeout_s=20)).waiting >= count:
                return


@contextmanager
def peer_process(address: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a peer beside the test; it is gone when the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.bus_peer", address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    with process:
        try:
            assert cast("IO[bytes]", process.stdout).readline() == b"ready\n"
            yield process
        finally:
            if process.stdin is not None:
                process.stdin.close()
            process.wait(20)


async def _main(address: str) -> None:
    bus = await Bus.connect(load_settings(), kind=PeerKind.CLIENT, address=address)
    async with bus:
        Echo(bus)
        await bus.claim("echo")
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
