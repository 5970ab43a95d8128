"""The agents of the launch benchmark: one that ends at once, one that works a little, and one that waits."""

from __future__ import annotations

import asyncio

from pisub.child import Child

_STEADY_S = 0.05


async def brief(child: Child) -> str:
    """End at once."""
    return child.run_id


async def steady(child: Child) -> str:
    """Work for longer than the runner needs to reach the broker."""
    await asyncio.sleep(_STEADY_S)
    return child.run_id


async def idle(child: Child) -> str:
    """Wait to be stopped."""
    await asyncio.Event().wait()
    return child.run_id
