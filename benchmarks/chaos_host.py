"""A session's host in a process of its own, to be killed: it writes each call of its handler as a line of a file."""

from __future__ import annotations

import asyncio
import os
import sys

import pisub
from pisub.record.sessions import Delivery
from pisub.testing import ScriptedHuman


async def serve(session: str, log: str) -> None:
    """Be the host until killed."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(delivery: Delivery) -> None:
        os.write(descriptor, f"{delivery.delivery_key} {int(delivery.redelivered)}\n".encode())

    async with pisub.host(session, ScriptedHuman([]), note, wait=True):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:3]))
