"""An agent that takes its time."""

import asyncio

from pisub import Child


async def nap(child: Child) -> str:
    """Do nothing for a second."""
    child.log("asleep")
    await asyncio.sleep(1)
    return "rested"
