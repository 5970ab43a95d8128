"""A server that hosts sessions, and reclaims those that nobody uses: but never one that still has work.

    python reaper.py

Two sessions, both unused at once. One has a run that goes on; it is kept until that has ended.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pisub
from pisub.liveness import LivenessRegistry


class Nobody:
    """There is no human here: every question is dismissed."""

    async def select(self, title: str, options: Sequence[str], context: pisub.DialogContext) -> str | None:
        """Choose nothing."""
        return None

    async def input(self, title: str, placeholder: str, context: pisub.DialogContext) -> str | None:
        """Say nothing."""
        return None


class Server:
    """The sessions that this server hosts."""

    def __init__(self) -> None:
        self.liveness = LivenessRegistry()
        self.sessions: dict[str, pisub.Host] = {}
        self._open: dict[str, AsyncExitStack] = {}

    async def open(self, session_id: str) -> pisub.Host:
        """Host a session."""
        stack = AsyncExitStack()
        host = await stack.enter_async_context(pisub.host(session_id, dialogs=Nobody(), on_completion=print_end))
        host.announce_liveness(self.liveness)
        self.sessions[session_id] = host
        self._open[session_id] = stack
        return host

    async def reap(self) -> list[str]:
        """Close the sessions that are not live, and return their names."""
        idle = [each for each in self.sessions if not self.liveness.has_active_provider(session_id=each)]
        for session_id in idle:
            await self.close(session_id)
        return idle

    async def close(self, session_id: str) -> None:
        """Close a session, live or not: somebody asked for it."""
        del self.sessions[session_id]
        await self._open.pop(session_id).aclose()


def print_end(delivery: pisub.Delivery) -> None:
    """Say how a run ended."""
    print(f"{delivery.completion.session_id}: {delivery.completion.agent} {delivery.completion.state}")


async def main() -> None:
    """Reap until nothing is left."""
    server = Server()
    await server.open("empty")
    busy = await server.open("busy")
    run = await busy.spawn("nap", "a moment", Path(__file__).parent)
    print("reaped:", *await server.reap())
    print("kept:", *server.sessions)
    await run.result()
    while server.sessions:
        for session_id in await server.reap():
            print("reaped:", session_id)
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(main())
