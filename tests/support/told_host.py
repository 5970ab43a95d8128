"""A session's host in a process of its own, to be killed: each call of a handler is a line of a file.

Arguments: session, file, and ``hang`` where the handler of ends never returns.
"""

from __future__ import annotations

import asyncio
import os
import sys

import pisub
from pisub.hosting.completions import CompletionGroup
from pisub.hosting.subscriptions import WaitEnded
from pisub.testing import ScriptedHuman


async def serve(session: str, log: str, *, is_hanging: bool) -> None:
    """Be the host until killed."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def note(group: CompletionGroup) -> None:
        for each in group.deliveries:
            os.write(descriptor, f"end {each.delivery_key} {int(each.redelivered)}\n".encode())
        if is_hanging:
            await asyncio.Event().wait()

    def note_wait(ended: WaitEnded) -> None:
        os.write(descriptor, f"wait {ended.subscription.token} {ended.outcome}\n".encode())

    async with pisub.host(session, ScriptedHuman([]), on_completions=note, on_wait=note_wait):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], is_hanging=sys.argv[3:] == ["hang"]))
