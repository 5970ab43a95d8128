"""The agents of the launch benchmark: one that ends at once, and one that waits."""

from __future__ import annotations

import asyncio

from pisub.child import Child


async def brief(child: Child) -> str:
    """End at once."""
    await asyncio.sleep(0.05)
    return child.run_id


async def idle(child: Child) -> str:
    """Wait to be stopped."""
    await asyncio.Event().wait()
    await asyncio.sleep(0.05)
    return child.run_id
